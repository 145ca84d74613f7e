package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node"
)

// builtInSocket is where clients look when nothing else is known.
const builtInSocket = "/run/monopod/monopod.sock"

// clientFlags are the flags of commands that ask the daemon.
type clientFlags struct {
	socket    string
	namespace string
	// requestTimeout is how long each request may take; 0: no limit.
	requestTimeout time.Duration
}

// addSocket adds the flags that say which daemon is asked, and how long it may take.
func (c *clientFlags) addSocket(set *pflag.FlagSet) {
	set.StringVar(&c.socket, "socket", "", "unix `socket` of the daemon (default: MONOPOD_SOCKET, else as configured, "+builtInSocket+")")
	set.DurationVar(&c.requestTimeout, "request-timeout", -1, "how long the daemon may take to answer a request; streams count until they begin; 0: no limit (default: "+config.EnvRequestTimeout+", else 30s)")
}

func (c *clientFlags) add(set *pflag.FlagSet) {
	c.addSocket(set)
	set.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pod")
}

// client returns a client for the socket that the flag, the environment or the configuration names.
func (p *program) client(c *clientFlags) *node.Client {
	client := node.NewClient(p.findSocket(c.socket))
	if p.limits != nil {
		client.Limits = *p.limits
	}
	client.Limits.Request = p.requestTimeout(c.requestTimeout, client.Limits.Request)
	client.OnWarning = func(text string) { p.errs().Println("warning:", text) }
	return client
}

// requestTimeout is that of the flag, unless it is negative, else that of the environment, else known.
func (p *program) requestTimeout(flag, known time.Duration) time.Duration {
	if flag >= 0 {
		return flag
	}
	if d, err := time.ParseDuration(p.env.Lookup(config.EnvRequestTimeout)); err == nil && d >= 0 {
		return d
	}
	return known
}

func (p *program) findSocket(flag string) string {
	if flag != "" {
		return flag
	}
	if s := p.env.Lookup(config.Key{Path: "socket"}.Env()); s != "" {
		return s
	}
	// A configuration that cannot be read is the daemon's problem, not that of who asks it.
	if cfg, err := config.Load(&config.Flags{}, p.env); err == nil {
		return cfg.Socket
	}
	return builtInSocket
}

// podKey reads NAME or NAMESPACE/NAME with the -n flag.
func (c *clientFlags) podKey(arg string) (manifests.Key, error) {
	ns, name, both := strings.Cut(arg, "/")
	if !both {
		ns, name = c.namespace, arg
	}
	if ns == "" && !both {
		ns = "default"
	}
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return manifests.Key{}, usagef("%q is not the name of a pod; write NAME or NAMESPACE/NAME", arg)
	}
	if both && c.namespace != "" && c.namespace != ns {
		return manifests.Key{}, usagef("%q is not in namespace %s", arg, c.namespace)
	}
	return manifests.Key{Namespace: ns, Name: name}, nil
}

// isPodWord says whether the argument names the kind Pod.
func isPodWord(s string) bool { return s == "pod" || s == "pods" || s == "po" }

// podArg reads "pod NAME", "pod/NAME" or "NAME".
func (c *clientFlags) podArg(args []string) (manifests.Key, error) {
	switch kind, name, slash := strings.Cut(args[0], "/"); {
	case len(args) == 2 && isPodWord(args[0]):
		return c.podKey(args[1])
	case len(args) == 2:
		return manifests.Key{}, usagef("monopod has no %q; write: pod NAME", args[0])
	case slash && isPodWord(kind):
		return c.podKey(name)
	case isPodWord(args[0]):
		return manifests.Key{}, usagef("which pod?")
	default:
		return c.podKey(args[0])
	}
}

// rangeArgs wants a number of arguments between low and high.
func rangeArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usagef("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// notFoundHint helps with a pod that is in another namespace.
func notFoundHint(all []manifests.Key, wanted manifests.Key) string {
	for _, k := range all {
		if k.Name == wanted.Name {
			return fmt.Sprintf("; there is %s: use -n %s", k, k.Namespace)
		}
	}
	return ""
}
