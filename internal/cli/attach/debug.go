package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"monopod/internal/cli/lookup"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localclient"
)

// debugOptions are the flags of `debug`.
type debugOptions struct {
	execOptions
	image, target, profile string
}

// Profiles of debug, as in kubectl.
const (
	profileGeneral  = "general"
	profileBaseline = "baseline"
	profileSysadmin = "sysadmin"
)

// DebugCommand returns `monopod debug`.
func (p Commands) DebugCommand() *cobra.Command {
	o := &debugOptions{}
	cmd := &cobra.Command{
		Use:   "debug POD|KIND/NAME [flags] [-- COMMAND [ARG...]]",
		Short: "Add an ephemeral container to a running pod",
		Long: "The container shares network and volumes of the pod, and with --target the processes of one of its containers, whose root directory is then " +
			"/proc/1/root. It is started once, survives restarts of monopod, and is never restarted. It cannot be removed; it is deleted with the pod. The manifest of the " +
			"pod does not change. With -i, `monopod debug` attaches to it and exits with its exit code; otherwise it returns immediately.",
		Example: "monopod debug web -it --image busybox:1.36 --target app\nmonopod debug web --image busybox:1.36 -- nslookup db\n" +
			"monopod debug web -it --image busybox:1.36 --profile sysadmin",
		RunE: func(cmd *cobra.Command, args []string) error {
			names, command := args, []string(nil)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				names, command = args[:dash], args[dash:]
			}
			if len(names) < 1 || len(names) > 2 {
				return program.Usagef("usage: monopod debug POD --image IMAGE [-it] [--target CONTAINER] [-- COMMAND [ARG...]]")
			}
			target, err := o.ObjectArg(names)
			if err != nil {
				return err
			}
			return p.debug(cmd.Context(), o, target, command)
		},
	}
	o.add(cmd)
	f := cmd.Flags()
	f.Lookup("container").Usage = "`name` of the new container (default: debugger- and a random suffix)"
	f.StringVar(&o.image, "image", "", "`image` of the new container (default: that of the target, or of the first container)")
	f.StringVar(&o.target, "target", "", "share the process namespace of this `container`")
	f.StringVar(&o.profile, "profile", profileGeneral, "security `profile`: general (may trace processes), baseline or sysadmin (privileged)")
	return cmd
}

func (p Commands) debug(ctx context.Context, o *debugOptions, target program.Object, command []string) error {
	c := p.Client(&o.ClientFlags)
	to, err := lookup.NewCommands(p.Program).Reach(ctx, c, target)
	if err != nil {
		return err
	}
	if o.tty && o.stdin && !program.IsTerminal(p.Stdin) {
		p.note(&o.execOptions, "Unable to use a TTY - input is not a terminal or the right kind of file")
		o.tty = false
	}
	e, err := o.ephemeral(to.Pod, command)
	if err != nil {
		return err
	}
	if o.container == "" {
		p.note(&o.execOptions, "Defaulting debug container name to %s.", e.Name)
	}
	pod, err := localclient.AddEphemeral(ctx, c, to.Pod.Namespace, to.Pod.Name, to.Pod.UID, e)
	if err != nil || !o.stdin {
		return err
	}
	d := &debugger{Commands: p, o: o, c: c, pod: pod}
	o.container = e.Name
	err = d.converse(ctx)
	switch {
	case ctx.Err() != nil:
		return program.CodeError{Code: p.Signals.ExitCode()}
	case errors.Is(err, errDetach):
		return nil
	}
	return err
}

// ephemeral returns the container to add.
func (o *debugOptions) ephemeral(pod *corev1.Pod, command []string) (*corev1.EphemeralContainer, error) {
	e := &corev1.EphemeralContainer{TargetContainerName: o.target}
	e.Name, e.Image, e.Command, e.Stdin, e.TTY = o.container, o.image, command, o.stdin, o.tty
	e.StdinOnce = o.stdin && !o.tty // its input ends with the user's, and its output is shown completely
	e.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	like := &pod.Spec.Containers[0]
	if o.target != "" {
		if like = manifests.FindContainer(&pod.Spec, o.target); like == nil {
			return nil, fmt.Errorf("pod %s has no container %q; it has %s", pod.Name, o.target, strings.Join(node.ContainerNames(pod), ", "))
		}
	}
	if e.Image == "" {
		e.Image, e.ImagePullPolicy = like.Image, like.ImagePullPolicy
	}
	if e.Name == "" {
		e.Name = "debugger-" + rand.String(5)
	}
	switch o.profile {
	case profileGeneral:
		e.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}
	case profileBaseline:
	case profileSysadmin:
		e.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	default:
		return nil, program.Usagef("unknown profile %q; use general, baseline or sysadmin", o.profile)
	}
	return e, nil
}

// debugger is an ephemeral container to which a user attaches.
type debugger struct {
	Commands
	o   *debugOptions
	c   *localclient.Client
	pod *corev1.Pod
}

// converse attaches to the container as soon as it runs, until it exits or the user detaches. The error has its exit code.
func (d *debugger) converse(ctx context.Context) error {
	ended, err := d.await(ctx, func(s *corev1.ContainerState) bool { return s.Running != nil || s.Terminated != nil })
	switch {
	case err != nil:
		return err
	case ended != nil: // before the client could attach
		return errors.Join(d.print(ctx), d.exit(ended))
	}
	if !d.o.tty {
		return d.pipe(ctx)
	}
	attached := d.attachTo(ctx, &d.o.execOptions, d.c, d.pod)
	if errors.Is(attached, errDetach) || ctx.Err() != nil {
		return attached
	}
	ended, err = d.terminated(ctx)
	switch {
	case err != nil || ended == nil: // it continues without this client
		return errors.Join(attached, err)
	case attached != nil: // it exited at that moment
		return errors.Join(d.print(ctx), d.exit(ended))
	}
	return d.exit(ended)
}

// pipe sends standard input to the container, and prints its log, which has the output from before the client attached, too. The error has
// the exit code of the container.
func (d *debugger) pipe(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all errgroup.Group
	all.Go(func() error {
		input := d.o.execOptions
		input.inputOnly = true
		err := d.attachTo(ctx, &input, d.c, d.pod)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if ended, _ := d.terminated(ctx); ended == nil {
			cancel(err) // the container may wait for input that it cannot get
		}
		return nil
	})
	all.Go(func() error { return d.follow(ctx, corev1.LogStreamStdout, d.Raw()) })
	all.Go(func() error { return d.follow(ctx, corev1.LogStreamStderr, d.RawErr()) })
	ended, err := d.await(ctx, func(s *corev1.ContainerState) bool { return s.Terminated != nil })
	if ended == nil {
		cancel(err)
		return errors.Join(context.Cause(ctx), all.Wait())
	}
	defer time.AfterFunc(exitKnown, func() { cancel(nil) }).Stop() // another process may keep its output open
	return errors.Join(all.Wait(), d.exit(ended))
}

// follow prints one stream of the log until the container ends. The end of ctx is not an error.
func (d *debugger) follow(ctx context.Context, stream string, to io.Writer) error {
	log, err := d.c.Log(ctx, d.pod.Namespace, d.pod.Name, url.Values{"container": {d.o.container}, "follow": {"true"}, "stream": {stream}})
	if err == nil {
		defer log.Close()
		_, err = io.Copy(to, log)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// terminated returns the termination of the container, if it is known within exitKnown.
func (d *debugger) terminated(ctx context.Context) (*corev1.ContainerStateTerminated, error) {
	known, cancel := context.WithTimeout(ctx, exitKnown)
	defer cancel()
	return d.await(known, func(s *corev1.ContainerState) bool { return s.Terminated != nil })
}

// exitKnown is the timeout for the exit of a container to appear in its status after its output has ended.
const exitKnown = 2 * time.Second

// errFound ends a watch.
var errFound = errors.New("found")

// await waits until the state of the container satisfies wanted, and returns its termination, if any. The end of ctx is not an error.
func (d *debugger) await(ctx context.Context, wanted func(*corev1.ContainerState) bool) (ended *corev1.ContainerStateTerminated, err error) {
	said := ""
	err = d.c.Watch(ctx, d.pod.Namespace, d.pod.Name, func(e localclient.PodEvent) error {
		if e.Type == "DELETED" || e.Object.UID != d.pod.UID {
			return fmt.Errorf("pod %s was removed", d.pod.Name)
		}
		all := e.Object.Status.EphemeralContainerStatuses
		i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == d.o.container })
		if i < 0 {
			return nil
		}
		state := &all[i].State
		if wanted(state) {
			ended = state.Terminated
			return errFound
		}
		if state.Waiting != nil && state.Waiting.Message != "" && state.Waiting.Message != said {
			said = state.Waiting.Message
			d.note(&d.o.execOptions, "%s", said)
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return ended, err
}

// print prints the log of the container.
func (d *debugger) print(ctx context.Context) error {
	log, err := d.c.Log(ctx, d.pod.Namespace, d.pod.Name, url.Values{"container": {d.o.container}})
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = io.Copy(d.Raw(), log)
	return err
}

// exit returns the exit code of the container as the error of the command.
func (d *debugger) exit(ended *corev1.ContainerStateTerminated) error {
	if ended.ExitCode == 0 {
		return nil
	}
	text := ""
	if ended.Message != "" {
		text = ": " + ended.Message
	}
	d.note(&d.o.execOptions, "container %s terminated with exit code %d%s", d.o.container, ended.ExitCode, text)
	return program.CodeError{Code: int(ended.ExitCode)}
}
