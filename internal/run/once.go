package run

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/run/outcome"
	"monopod/internal/trial"
)

// onceOptions are the flags of `once`.
type onceOptions struct {
	trialFlags
	remove   bool
	failFast bool
	// env is a file to which the variables of `up` are appended.
	env string
	// until is what pods with restartPolicy Never or OnFailure are waited for.
	until string
}

// Values of --until. A pod with restartPolicy Always does not finish, so it is always waited for until it is Ready.
const (
	untilReady    = "ready"
	untilFinished = "finished"
)

// OnceCommand returns `monopod once`.
func (p Commands) OnceCommand() *cobra.Command {
	o := &onceOptions{}
	cmd := &cobra.Command{
		Use:   "once -f FILE|DIR|-...",
		Short: "Run pods to completion or readiness",
		Long: "Starts the pods with an agent, directories, subnet, bridge and cgroup of their own, independent of the daemon; many runs can be active at once. Waits " +
			"until Jobs and pods with restartPolicy Never or OnFailure are completed and other pods are Ready (CronJobs are not waited for), and prints a table and " +
			"the last log lines of failed pods.\n\n" +
			"An agent in the background keeps the pods running until `monopod down`. With --rm they are removed at once; only images stay, for the next run.\n\n" +
			"Exit code 0: all Ready or succeeded; 1: a pod failed or a manifest was refused; 2: timeout; 125: internal failure; 128 + signal: interrupted, all " +
			"removed.",
		Example: "monopod once -f job.yaml --rm\nmonopod once -f manifests --timeout=2m --fail-fast\nmonopod once -f server.yaml --until=ready",
		Args:    program.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&o.remove, "rm", false, "remove the pods at the end")
	f.BoolVar(&o.failFast, "fail-fast", false, "stop waiting when a pod fails")
	f.StringVar(&o.until, "until", untilFinished, "`state` to wait for in pods with restartPolicy Never or OnFailure: ready or finished")
	f.BoolFunc("finish", "deprecated: use --until", finishFlag(o, p.Errs()))
	f.Lookup("finish").Hidden = true
	f.StringVar(&o.env, "env", "", "append the variables of monopod up to this `file`, for example $GITHUB_ENV")
	p.runFlags(cmd, &o.trialFlags, func(ctx context.Context, cfg *config.Loaded, _ []string) error { return p.once(ctx, cfg, o) })
	cmd.PreRunE = func(*cobra.Command, []string) error {
		o.rules.Finish = o.until == untilFinished
		if o.until != untilFinished && o.until != untilReady {
			return program.Usagef("unknown --until %q; one of %s, %s", o.until, untilReady, untilFinished)
		}
		return nil
	}
	return cmd
}

// finishFlag returns what sets --finish, which scripts of before --until still use.
func finishFlag(o *onceOptions, errs printer.Printer) func(string) error {
	return func(value string) error {
		finish, err := strconv.ParseBool(value)
		if o.until = untilReady; finish {
			o.until = untilFinished
		}
		if err == nil {
			errs.Printf("monopod: --finish is deprecated; use --until %s\n", o.until)
		}
		return err
	}
}

func (p Commands) once(ctx context.Context, cfg *config.Loaded, o *onceOptions) error {
	g, r, err := p.bringUp(ctx, cfg, &o.trialFlags, waitLimits{timeout: o.timeout, failFast: o.failFast})
	if err != nil {
		r.Result, r.Reason = trial.Failed, err.Error()
	}
	told := errors.Join(o.file(r), p.tellOnce(o, r, g))
	if g != nil {
		told = errors.Join(told, p.leave(ctx, g, o.remove || err != nil || r.Result == trial.Interrupted))
		g.slot.Release()
		told = errors.Join(told, o.appendEnv(r))
	}
	switch err := errors.Join(err, told); {
	case err != nil:
		return program.CodeError{Code: program.ExitNotRun, Err: err}
	case r.Result == trial.Failed:
		return program.CodeError{Code: program.ExitError}
	case r.Result == trial.TimedOut:
		return program.CodeError{Code: program.ExitTimeout, Err: o.late(r)}
	case r.Result == trial.Interrupted:
		return program.CodeError{Code: p.Signals.ExitCode()}
	}
	return nil
}

// tellOnce prints the report.
func (p Commands) tellOnce(o *onceOptions, r trial.Report, g *stage) error {
	if o.output == "json" {
		return r.WriteJSON(p.RawJSON())
	}
	var views []trial.View
	if g != nil {
		views = g.views
	}
	outcome.Print(p.Out(), p.Errs(), r, views)
	return nil
}

// appendEnv appends the addresses of the pods to the file of --env, for later steps.
func (o *onceOptions) appendEnv(r trial.Report) error {
	if o.env == "" {
		return nil
	}
	vars, err := r.Environ()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(o.env, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	vars = append(vars, config.Key{Path: "socket"}.Env()+"="+r.Run.Socket)
	_, err = f.WriteString(strings.Join(vars, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// leave removes the pods, or keeps them and prints how to use them.
func (p Commands) leave(ctx context.Context, g *stage, remove bool) error {
	if remove {
		return g.remove(ctx)
	}
	if err := g.keep(ctx); err != nil {
		return err
	}
	p.Errs().Printf("the pods stay: `monopod get pods --socket %s` shows them, `monopod down %d` removes them\n", g.cfg.Socket, g.slot.number)
	return nil
}
