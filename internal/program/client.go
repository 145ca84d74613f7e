package program

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/config"
	"monopod/internal/objects"
	"monopod/manifests"
	"monopod/node/localclient"
)

// BuiltInSocket is where clients look when nothing else is known.
const BuiltInSocket = "/run/monopod/monopod.sock"

// ClientFlags are the flags of commands that ask the daemon.
type ClientFlags struct {
	Socket    string
	Namespace string
	// requestTimeout is how long each request may take; 0: no limit.
	requestTimeout time.Duration
}

// AddSocket adds the flags that say which daemon is asked, and how long it may take.
func (c *ClientFlags) AddSocket(set *pflag.FlagSet) {
	set.StringVar(&c.Socket, "socket", "", "Unix `socket` of the daemon (default: MONOPOD_SOCKET, or as configured)")
	set.DurationVar(&c.requestTimeout, "request-timeout", -1, "`timeout` of a request; 0: none (default: "+config.EnvRequestTimeout+", or 30s)")
	set.Lookup("request-timeout").DefValue = "0s" // the text has the default
}

// Add adds the flags of clients to set: those of the socket, and the namespace.
func (c *ClientFlags) Add(set *pflag.FlagSet) {
	c.AddSocket(set)
	set.StringVarP(&c.Namespace, "namespace", "n", "", "`namespace` of the object")
}

// Client returns a client for the socket that the flag, the environment or the configuration names.
func (p *Program) Client(c *ClientFlags) *localclient.Client {
	client := localclient.New(p.FindSocket(c.Socket))
	if p.Limits != nil {
		client.Limits = *p.Limits
	}
	client.Limits.Request = p.requestTimeout(c.requestTimeout, client.Limits.Request)
	client.OnWarning = func(text string) { p.Errs().Println("warning:", text) }
	return client
}

// requestTimeout is that of the flag, unless it is negative, else that of the environment, else known.
func (p *Program) requestTimeout(flag, known time.Duration) time.Duration {
	if flag >= 0 {
		return flag
	}
	if d, err := time.ParseDuration(p.Env.Lookup(config.EnvRequestTimeout)); err == nil && d >= 0 {
		return d
	}
	return known
}

// FindSocket returns the socket of the flag, of the environment or of the configuration.
func (p *Program) FindSocket(flag string) string {
	if flag != "" {
		return flag
	}
	if s := p.Env.Lookup(config.Key{Path: "socket"}.Env()); s != "" {
		return s
	}
	// A client ignores an invalid configuration: the daemon reports it.
	if cfg, err := config.Load(&config.Flags{}, p.Env); err == nil {
		return cfg.Socket
	}
	return BuiltInSocket
}

// PodKey reads NAME or NAMESPACE/NAME with the -n flag.
func (c *ClientFlags) PodKey(arg string) (manifests.Key, error) {
	ns, name, both := strings.Cut(arg, "/")
	if !both {
		ns, name = c.Namespace, arg
	}
	if ns == "" && !both {
		ns = "default"
	}
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return manifests.Key{}, Usagef("%q is not the name of a pod; write NAME or NAMESPACE/NAME", arg)
	}
	if both && c.Namespace != "" && c.Namespace != ns {
		return manifests.Key{}, Usagef("%q is not in namespace %s", arg, c.Namespace)
	}
	return manifests.Key{Namespace: ns, Name: name}, nil
}

// IsPodWord reports whether the argument names the kind Pod.
func IsPodWord(s string) bool { return s == "pod" || s == "pods" || s == "po" }

// PodArg reads "pod NAME", "pod/NAME" or "NAME".
func (c *ClientFlags) PodArg(args []string) (manifests.Key, error) {
	switch kind, name, slash := strings.Cut(args[0], "/"); {
	case len(args) == 2 && IsPodWord(args[0]):
		return c.PodKey(args[1])
	case len(args) == 2:
		return manifests.Key{}, Usagef("unknown kind %q; expected pod NAME", args[0])
	case slash && IsPodWord(kind):
		return c.PodKey(name)
	case IsPodWord(args[0]):
		return manifests.Key{}, Usagef("expected pod NAME")
	case slash && kindOf(kind) != "":
		return manifests.Key{}, Usagef("a %s is not a pod; write pod NAME, with a name of `monopod get pods`", kindOf(kind))
	default:
		return c.PodKey(args[0])
	}
}

// kindOf returns the kind that a word names, empty if none.
func kindOf(word string) string {
	kind, _, _ := objects.Find(word)
	return kind
}

// RangeArgs wants a number of arguments between low and high.
func RangeArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return Usagef("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// NotFoundHint helps with a pod that is in another namespace.
func NotFoundHint(all []manifests.Key, wanted manifests.Key) string {
	for _, k := range all {
		if k.Name == wanted.Name {
			return fmt.Sprintf("; there is %s: use -n %s", k, k.Namespace)
		}
	}
	return ""
}
