package run

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"monopod/internal/config"
	"monopod/internal/program"
	"monopod/internal/run/outcome"
	"monopod/internal/trial"
)

// Exit codes of shells for commands that cannot be run.
const (
	ExitCannotExecute = 126
	ExitNotFound      = 127
)

// upOptions are the flags of `up`.
type upOptions struct {
	trialFlags
	wait     bool
	untilEOF bool
}

// UpCommand returns `monopod up`.
func (p Commands) UpCommand() *cobra.Command {
	o := &upOptions{}
	cmd := &cobra.Command{
		Use:   "up [-f FILE|DIR|-...] [--api] [-- COMMAND [ARGUMENT...]]",
		Short: "Start pods, run a command, remove the pods",
		Long: "Starts the pods as `monopod once` does, waits until all are completed or Ready (a Never pod may be a server), runs the command, removes " +
			"everything and exits with its exit code. Its environment:\n\n" +
			"    POD_WEB_IP               address of pod web; POD_TEAM_WEB_IP for namespace team\n" +
			"    POD_WEB_PORT_HTTP        its port http; unnamed ports: their number; POD_WEB_PORT: the first\n" +
			"    POD_WEB_HOSTPORT_HTTP    the host port of port http; POD_WEB_HOSTPORT: the first\n" +
			"    MONOPOD_SOCKET           for `monopod logs web`; KUBECONFIG: with --api, for kubectl\n\n" +
			"--api: the command has a Kubernetes API of its own, -f is optional, and what it creates is removed. Annotation `monopod.dev/free-host-ports` " +
			"(names, numbers or all): free host ports. Signals go to the command; without one, pods run until a signal. The next run or `monopod cleanup` removes " +
			"leftovers of a killed one.\n\n" +
			"Exit code: of the command; 126, 127: not runnable, not found; 125: pods not up, or not all removed.",
		Example: "monopod up -f pod.yaml --timeout=2m -- ./test.sh\nmonopod up --api -- kubectl get nodes",
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVar(&o.wait, "wait", true, "wait until pods are Ready, not only have addresses")
	f.BoolVar(&o.api, "api", false, "serve a Kubernetes API to the command")
	f.BoolVar(&o.untilEOF, "until-eof", false, "without a command: stop at end of input")
	p.runFlags(cmd, &o.trialFlags, func(ctx context.Context, cfg *config.Loaded, args []string) error {
		if o.output != "" && len(args) > 0 {
			return program.Usagef("the standard output is that of the command; write the report with --json FILE")
		}
		return p.up(ctx, cfg, o, args)
	})
	return cmd
}

func (p Commands) up(ctx context.Context, cfg *config.Loaded, o *upOptions, args []string) error {
	p.Signals.Also(syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	o.rules.Addresses = !o.wait
	g, r, err := p.bringUp(ctx, cfg, &o.trialFlags, waitLimits{timeout: o.timeout, failFast: true})
	var code int
	switch {
	case err != nil:
		r.Result, r.Reason = trial.Failed, err.Error()
		code = program.ExitNotRun
	case r.Result == trial.OK:
		code, err = p.use(ctx, g, o, &r, args)
	case r.Result == trial.Interrupted:
		code = p.Signals.ExitCode()
	default:
		code, err = program.ExitNotRun, p.notUp(g, o, r)
	}
	err = errors.Join(err, o.file(r))
	if g != nil {
		err = errors.Join(err, g.remove(ctx))
		g.slot.Release()
	}
	if err != nil && code == program.ExitOK {
		code = program.ExitNotRun
	}
	if code == program.ExitOK {
		return nil
	}
	return program.CodeError{Code: code, Err: err}
}

// notUp reports why the pods did not come up.
func (p Commands) notUp(g *stage, o *upOptions, r trial.Report) error {
	if o.output == "json" {
		if err := r.WriteJSON(p.RawJSON()); err != nil {
			return err
		}
	}
	var views []trial.View
	if g != nil {
		views = g.views
	}
	outcome.Print(p.Errs(), p.Errs(), r, views)
	if r.Result == trial.TimedOut {
		return o.late(r)
	}
	return errors.New("the pods did not come up")
}

// use runs the command, or waits for a signal, and returns the exit code.
func (p Commands) use(ctx context.Context, g *stage, o *upOptions, r *trial.Report, args []string) (int, error) {
	vars, err := r.Environ()
	if err != nil {
		return program.ExitNotRun, err
	}
	if len(args) > 0 {
		began := time.Now()
		code, err := p.Command(ctx, args, p.commandEnv(g, vars))
		r.Command = &trial.Command{Args: args, ExitCode: code, Seconds: time.Since(began).Seconds()}
		return code, err
	}
	if o.output == "json" {
		err = r.WriteJSON(p.RawJSON())
	} else {
		printUp(p, g, *r, vars)
	}
	if err != nil {
		return program.ExitNotRun, err
	}
	var eof chan struct{}
	if o.untilEOF {
		eof = make(chan struct{})
		go func() { defer close(eof); _, _ = io.Copy(io.Discard, p.Stdin) }() // it ends with the process, if not before
	}
	select {
	case <-ctx.Done():
	case <-eof:
	case err := <-g.ended:
		g.ended <- err
		return program.ExitNotRun, errors.Join(errors.New("the agent of the run has exited"), err)
	}
	return program.ExitOK, nil
}

// printUp prints the running pods and how to use them.
func printUp(p Commands, g *stage, r trial.Report, vars []string) {
	outcome.Print(p.Out(), p.Errs(), r, g.views)
	if len(r.Pods) > 0 {
		p.Out().Println()
	}
	for _, v := range vars {
		p.Out().Println(v)
	}
	if len(vars) > 0 {
		p.Out().Println()
	}
	for _, v := range g.access() {
		p.Out().Println(v)
	}
	p.Out().Println("Ctrl-C removes the pods.")
}

// access returns the environment variables with which clients find the agent of the run.
func (g *stage) access() []string {
	vars := []string{config.Key{Path: "socket"}.Env() + "=" + g.cfg.Socket}
	if g.kubeconfig != "" {
		vars = append(vars, "KUBECONFIG="+g.kubeconfig)
	}
	return vars
}

// commandEnv returns the environment of the command.
func (p Commands) commandEnv(g *stage, vars []string) []string {
	own := g.access()
	env := slices.DeleteFunc(slices.Clone(p.Env.Environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
	return slices.Concat(env, vars, own)
}

// Command runs a command, forwards all signals to it, and returns its exit code as a shell does. It does not start if ctx
// has ended; once it has started, ctx is ignored.
func (p Commands) Command(ctx context.Context, args, env []string) (int, error) {
	signals := make(chan os.Signal, 16)
	p.Signals.Forward(func(s os.Signal) {
		select {
		case signals <- s:
		default: // so many have not been looked at yet that one more makes no difference
		}
	})
	defer p.Signals.Forward(nil)
	if ctx.Err() != nil { // by a signal that came before
		return p.Signals.ExitCode(), nil
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, p.Stdin, p.Raw(), p.RawErr()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // its pods would be swept away
	started, done := make(chan error, 1), make(chan error, 1)
	go func() {
		// The signal of the parent's death is that of the death of its thread. This one ends with the goroutine.
		runtime.LockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			done <- c.Wait()
		}
	}()
	if err := <-started; err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return ExitNotFound, err
		}
		return ExitCannotExecute, err
	}
	var err error
	for running := true; running; {
		select {
		case err = <-done:
			running = false
		case s := <-signals:
			if !fromTerminal(s) {
				_ = c.Process.Signal(s) // it may have ended just now
			}
		}
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return program.ExitOK, nil
	case !exited:
		return program.ExitNotRun, err
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// fromTerminal reports whether a terminal has sent the signal to all processes in the foreground, so that the command has
// already received it.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
