// Package program is what all commands share: the process around them, the flags of clients, exit codes, and how output and errors are printed.
//
// It must not know any command. It starts no goroutines but those that follow signals and show progress.
package program

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/config"
	"monopod/internal/host"
	"monopod/internal/printer"
	"monopod/node/localclient"
	"monopod/node/systemd"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitError = 1
	// ExitUsage is for command lines and configurations that cannot be understood.
	ExitUsage = 2
	// ExitTimeout is for what did not come in time: pods of a run that are not up, say.
	ExitTimeout = 2
	// ExitNotRun is for runs that failed before their exit code could mean anything.
	ExitNotRun = 125
	// ExitSignal is what a shell reports for Ctrl-C.
	ExitSignal = 130
)

// Program is monopod with everything it touches of the process around it.
type Program struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Env    config.Environment
	Host   host.Host
	// Euid returns the effective user id.
	Euid func() int
	// Manager is the service manager that started this process; nil: it is detected.
	Manager *systemd.Notifier
	// Signals is nil in tests.
	Signals *Interrupts
	// ProgressAfter is how long a command that waits shows nothing; 0: it never does.
	ProgressAfter time.Duration
	// Limits are those of clients; nil: the usual ones.
	Limits *localclient.Limits
	// Words are those of the command line; nil: there is none, and all commands are complete.
	Words []string
}

// UsageError is a command line that cannot be understood.
type UsageError struct{ error }

// CodeError ends the program with a code of its own. Without an error, what is wrong has been printed already.
type CodeError struct {
	Code int
	Err  error
}

// Error implements error.
func (e CodeError) Error() string { return fmt.Sprint(e.Err) }

// OwnCodes marks commands whose exit codes are those of what they run: all that is wrong besides is ExitNotRun.
const OwnCodes = "exit-codes"

// SilentError ends the program with ExitError; what is wrong has been printed already.
type SilentError struct{}

func (SilentError) Error() string { return "" }

// PrintError prints each line of an error with a mark.
func (p *Program) PrintError(err error) {
	for _, l := range printer.ErrorLines(err) {
		p.Errs().Println("monopod:", l)
	}
}

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AppendHint returns a hint to append to a message; it is empty without one.
func AppendHint(hint string) string {
	if hint == "" {
		return ""
	}
	return "; " + hint
}

// NoArgs refuses arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unexpected argument %q", args[0])
	}
	return nil
}

// OneOfOutputs checks an -o flag.
func OneOfOutputs(output string, allowed ...string) error {
	if output == "" || slices.Contains(allowed, output) {
		return nil
	}
	return Usagef("unknown output format %q; one of %s", output, strings.Join(allowed, ", "))
}

// HelpConfig is the flag that lists the flags of configuration keys.
const HelpConfig = "help-config"

// configKey marks the flags of configuration keys.
const configKey = "monopod-config-key"

// IsConfigKey reports whether a flag is that of a configuration key.
func IsConfigKey(f *pflag.Flag) bool { return f.Annotations[configKey] != nil }

// ConfigFlags adds --config and a flag for each configuration key to cmd. There are so many keys that only commands that the
// command line names get their flags.
func (p *Program) ConfigFlags(cmd *cobra.Command) *config.Flags {
	if p.Words != nil && !slices.Contains(p.Words, cmd.Name()) {
		return &config.Flags{Set: cmd.Flags()}
	}
	own := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	flags := config.AddFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !own[f.Name] && f.Name != "config" {
			f.Annotations = map[string][]string{configKey: {}}
		}
	})
	cmd.Flags().Var(helpConfig{cmd}, HelpConfig, "list the flags of configuration keys")
	cmd.Flags().Lookup(HelpConfig).NoOptDefVal = "true"
	return flags
}

// helpConfig is the value of --help-config: like --help, it is followed before arguments are checked.
type helpConfig struct{ cmd *cobra.Command }

func (h helpConfig) String() string     { return "" }
func (h helpConfig) Type() string       { return "bool" }
func (h helpConfig) Set(s string) error { return h.cmd.Flags().Set("help", s) }
