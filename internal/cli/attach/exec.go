package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cli/lookup"
	"monopod/internal/program"
	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localclient"
)

// execOptions are the flags of `exec` and `attach`.
type execOptions struct {
	program.ClientFlags
	container string
	stdin     bool
	tty       bool
	quiet     bool
	// inputOnly discards the output, which the caller reads from the log.
	inputOnly bool
}

func (o *execOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	o.Add(f)
	f.StringVarP(&o.container, "container", "c", "", "container `name` (default: the first one)")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input to the container")
	f.BoolVarP(&o.tty, "tty", "t", false, "allocate a terminal")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only the output of the process")
}

// ExecCommand returns `monopod exec`.
func (p Commands) ExecCommand() *cobra.Command {
	o := &execOptions{}
	cmd := &cobra.Command{
		Use:   "exec POD|KIND/NAME -- COMMAND [ARG...]",
		Short: "Run a command in a container",
		Long: "The command runs with the user, environment, working directory and privileges of the container's main process. It is killed when `monopod exec` ends. " +
			"The exit code is that of the command, or 1 if it could not be started.",
		Example: "monopod exec web -- ls /\nmonopod exec -it web -c app -- sh\nmonopod exec deploy/web -- env",
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 1 || dash > 2 || len(args) == dash {
				return program.Usagef("usage: monopod exec POD [-c CONTAINER] -- COMMAND [ARG...]")
			}
			target, err := o.ObjectArg(args[:dash])
			if err != nil {
				return err
			}
			return p.exec(cmd.Context(), o, target, args[dash:])
		},
	}
	o.add(cmd)
	return cmd
}

func (p Commands) exec(ctx context.Context, o *execOptions, target program.Object, command []string) error {
	c := p.Client(&o.ClientFlags)
	to, err := lookup.NewCommands(p.Program).Reach(ctx, c, target)
	if err != nil {
		return err
	}
	pod, key := to.Pod, to.Key()
	name := p.containerFor(o, pod)
	if name != "" && !slices.Contains(node.ContainerNames(pod), name) {
		return fmt.Errorf("container not found (%q)", name)
	}
	if o.tty && o.stdin && !program.IsTerminal(p.Stdin) {
		p.note(o, "Unable to use a TTY - input is not a terminal or the right kind of file")
		o.tty = false
	}
	s, done, err := p.streams(o)
	if err != nil {
		return err
	}
	code, err := c.Streams().Exec(ctx, key, name, command, s)
	done()
	switch {
	case ctx.Err() != nil:
		return program.CodeError{Code: p.Signals.ExitCode()}
	case err != nil:
		return err
	case code != 0:
		p.note(o, "command terminated with exit code %d", code)
		return program.CodeError{Code: code}
	}
	return nil
}

// containerFor returns the container to use.
func (p Commands) containerFor(o *execOptions, pod *corev1.Pod) string {
	if o.container != "" {
		return o.container
	}
	return p.defaultContainer(pod)
}

// note prints a note for the user, unless --quiet is set.
func (p Commands) note(o *execOptions, format string, args ...any) {
	if !o.quiet {
		p.Errs().Printf(format+"\n", args...)
	}
}

// streams returns the requested streams of this process. Call done when the remote process has exited.
func (p Commands) streams(o *execOptions) (s streams.Streams, done func(), err error) {
	s = streams.Streams{Stdout: p.Raw(), Stderr: p.RawErr(), TTY: o.tty}
	done = func() {}
	if o.stdin {
		s.Stdin = p.Stdin
	}
	if o.inputOnly {
		s.Stdout, s.Stderr = io.Discard, io.Discard
	}
	if !o.tty {
		return s, done, nil
	}
	s.Stderr = nil
	if o.stdin {
		t, err := p.takeTerminal()
		if err != nil {
			return s, nil, err
		}
		s.Resize, done = t.sizes, t.restore
	}
	return s, done, nil
}

// AttachCommand returns `monopod attach`.
func (p Commands) AttachCommand() *cobra.Command {
	o := &execOptions{}
	cmd := &cobra.Command{
		Use:   "attach POD|KIND/NAME",
		Short: "Attach to the main process of a container",
		Long: "Prints the output of the container from now on, until it ends. With -i, standard input is sent to a container that has `stdin: true`. Ctrl-P Ctrl-Q " +
			"detaches from a terminal and leaves the container running.",
		Example: "monopod attach web\nmonopod attach -it web -c app",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := o.ObjectArg(args)
			if err != nil {
				return err
			}
			return p.attach(cmd.Context(), o, target)
		},
	}
	o.add(cmd)
	return cmd
}

func (p Commands) attach(ctx context.Context, o *execOptions, target program.Object) error {
	c := p.Client(&o.ClientFlags)
	to, err := lookup.NewCommands(p.Program).Reach(ctx, c, target)
	if err != nil {
		return err
	}
	if err := p.attachTo(ctx, o, c, to.Pod); !errors.Is(err, errDetach) {
		return err
	}
	return nil
}

// attachTo attaches to a container of a pod until that exits. It returns errDetach if the user detaches.
func (p Commands) attachTo(ctx context.Context, o *execOptions, c *localclient.Client, pod *corev1.Pod) error {
	key, name := manifests.Key{Namespace: pod.Namespace, Name: pod.Name}, p.containerFor(o, pod)
	container := manifests.FindContainer(&pod.Spec, name)
	if container == nil {
		return fmt.Errorf("pod %s has no container %q; it has %s", key, name, strings.Join(node.ContainerNames(pod), ", "))
	}
	if o.stdin && !container.Stdin {
		p.note(o, "container %s has no standard input (stdin: true)", name)
		o.stdin = false
	}
	if o.tty && !container.TTY {
		p.note(o, "Unable to use a TTY - container %s did not allocate one", name)
	}
	o.tty = o.tty && container.TTY && o.stdin && program.IsTerminal(p.Stdin)
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	s, done, err := p.streams(o)
	if err != nil {
		return err
	}
	if container.TTY {
		s.TTY, s.Stderr = true, nil // which it has, also for those who only look
	}
	if o.tty {
		s.Stdin = &detachable{from: p.Stdin, leave: func() { leave(errDetach) }}
		p.note(o, "If you don't see a command prompt, try pressing enter.\r")
	}
	err = c.Streams().Attach(ctx, key, name, s)
	done()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDetach):
		p.note(o, "")
		return errDetach
	case cause != nil:
		return program.CodeError{Code: p.Signals.ExitCode()}
	}
	return err
}
