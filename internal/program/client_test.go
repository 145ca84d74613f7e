package program

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/config"
	"monopod/internal/testfiles"
	"monopod/node/localclient"
)

// in is a program with an environment.
func in(environ ...string) *Program {
	return &Program{Env: config.Environment{Environ: environ, WorkDir: "/", Hostname: func() (string, error) { return "here", nil }}}
}

func TestTimeoutOfRequests(t *testing.T) {
	for _, tt := range []struct {
		flags, environ string
		want           time.Duration
	}{
		{"", "", 7 * time.Second},
		{"--request-timeout=2s", "3s", 2 * time.Second},
		{"--request-timeout=0", "3s", 0},
		{"", "3s", 3 * time.Second},
		{"", "0", 0},
		{"", "-3s", 7 * time.Second},
		{"", "soon", 7 * time.Second},
	} {
		var c ClientFlags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Add(set)
		if err := set.Parse(strings.Fields(tt.flags)); err != nil {
			t.Fatal(err)
		}
		p := in(config.EnvRequestTimeout + "=" + tt.environ)
		p.Limits = &localclient.Limits{Request: 7 * time.Second, Answer: 5}
		if got := p.Client(&c).Limits; got.Request != tt.want || got.Answer != 5 {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

func TestFlagsOfClients(t *testing.T) {
	var c ClientFlags
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Add(set)
	if err := set.Parse(strings.Fields("-n prod --socket /x")); err != nil || c.Namespace != "prod" || c.Socket != "/x" {
		t.Errorf("%+v %v", c, err)
	}
	// The default of a flag that is the zero value is not shown: the text has it.
	if usage := set.FlagUsages(); strings.Contains(usage, "(default -1") || !strings.Contains(usage, "or 30s)") {
		t.Error(usage)
	}
}

func TestWarningsOfTheDaemonArePrinted(t *testing.T) {
	p, errs := in(), &strings.Builder{}
	p.Stderr = errs
	p.Client(&ClientFlags{Socket: "/x"}).OnWarning("a source \x1b is missing")
	if got := errs.String(); got != "warning: a source \\x1b is missing\n" {
		t.Errorf("%q", got)
	}
}

// Commands that also read the disk must not mix it with the answers of another daemon.
func TestAnotherInstanceThanTheConfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	testfiles.Write(t, file, "socket: /configured\nrootDirectory: /own\n")
	for name, tt := range map[string]struct {
		flag    string
		environ []string
		want    bool
	}{
		"nothing says so":                          {"", nil, false},
		"the flag agrees":                          {"/configured", []string{"MONOPOD_CONFIG=" + file}, false},
		"the flag names another socket":            {"/other", []string{"MONOPOD_CONFIG=" + file}, true},
		"the variable, and all else is default":    {"", []string{"MONOPOD_SOCKET=/other"}, true},
		"the variable, and a configuration":        {"", []string{"MONOPOD_SOCKET=/other", "MONOPOD_CONFIG=" + file}, false},
		"the variable, and another root directory": {"", []string{"MONOPOD_SOCKET=/other", "MONOPOD_ROOT_DIRECTORY=/own"}, false},
	} {
		cfg, err := config.Load(&config.Flags{}, in(tt.environ...).Env)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&ClientFlags{Socket: tt.flag}).Elsewhere(cfg); got != tt.want {
			t.Errorf("%s: %v; %+v", name, got, cfg.Sources)
		}
	}
}

func TestFlagsOfConfigurationKeys(t *testing.T) {
	p := in()
	cmd := func(name string) *cobra.Command {
		c := &cobra.Command{Use: name, RunE: func(*cobra.Command, []string) error { return errors.New("it ran") }, SilenceUsage: true, SilenceErrors: true}
		c.Flags().Bool("follow", false, "a flag of this command")
		return c
	}
	run := cmd("run")
	p.ConfigFlags(run)
	for name, want := range map[string]bool{"follow": false, "config": false, HelpConfig: false, "root-directory": true, "node-name": true} {
		f := run.Flags().Lookup(name)
		if f == nil || IsConfigKey(f) != want {
			t.Errorf("--%s: %+v", name, f)
		}
	}
	p.Words = []string{"get", "pods"} // `run` is not on the command line
	other := cmd("run")
	p.ConfigFlags(other)
	if other.Flags().Lookup("root-directory") != nil {
		t.Error("a command that is not called has all flags of configuration keys")
	}
	var help bool
	run.SetHelpFunc(func(*cobra.Command, []string) { help = true })
	run.SetArgs([]string{"--" + HelpConfig, "--no-value-for", "anything"})
	run.FParseErrWhitelist.UnknownFlags = true
	if err := run.Execute(); err != nil || !help {
		t.Errorf("--%s: help %v, error %v", HelpConfig, help, err)
	}
}
