package run

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/program"
	"monopod/internal/trial"
)

// onceOptions are the flags of `once`.
type onceOptions struct {
	trialFlags
	remove   bool
	failFast bool
	// env is a file that gets the variables of `up`.
	env string
}

func (p Commands) OnceCommand() *cobra.Command {
	o := &onceOptions{}
	cmd := &cobra.Command{
		Use:   "once -f FILE|DIR|-...",
		Short: "Start pods, wait until each is ready or has finished, and say how they came out",
		Long: "Start the pods of manifests with an agent of their own (own directories, subnet, bridge and cgroup: the daemon of the\n" +
			"machine is not touched, and many can run at once), wait until each is Ready or has finished, print a table, and the\n" +
			"last lines of the logs of pods that are not. A Job is waited for until it has finished; a CronJob is not.\n\n" +
			"The pods stay, and an agent in the background looks after them; `monopod down` removes them. With --rm they are\n" +
			"removed at once, and nothing stays but their images, for the next run.\n\n" +
			"Exit code 0: all are ready or have finished well; 1: a pod has failed, or a manifest is refused; 2: time was up;\n" +
			"125: monopod itself could not do it; 128 and the number of the signal after a signal, which removes everything.",
		Args: program.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&o.remove, "rm", false, "remove the pods at the end")
	f.BoolVar(&o.failFast, "fail-fast", false, "do not wait for the others when a pod has failed")
	f.BoolVar(&o.rules.Finish, "finish", false, "wait until pods with restartPolicy Never or OnFailure have finished, Ready is not enough")
	f.StringVar(&o.env, "env", "", "append the variables that monopod up gives its command to this `file`, as for $GITHUB_ENV")
	p.runFlags(cmd, &o.trialFlags, func(ctx context.Context, cfg *config.Loaded, _ []string) error { return p.once(ctx, cfg, o) })
	return cmd
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
	p.tell(p.Out(), r, views)
	return nil
}

// appendEnv tells whoever comes later where the pods are.
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

// leave removes the pods, or leaves them and says how to go on with them.
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
