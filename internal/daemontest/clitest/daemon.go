// Package clitest runs commands against a daemon in the test process, which has a fake runtime, real files and a real socket.
//
// A test names the commands of its package, so that this package imports none of them.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/node/localclient"
	"monopod/runner/runtimetest"
)

// Commands returns the exit code of a command line.
type Commands func(ctx context.Context, p *Process, args []string) int

// Process is the process of a command, and what pods run on in it.
type Process struct {
	*program.Program
	Machine daemon.Machine
}

// Of returns the command lines of some commands. One of them must be `monopod run`, if a test starts a daemon.
func Of(commands func(*Process) []*cobra.Command) Commands {
	return func(ctx context.Context, p *Process, args []string) int {
		p.Words = append([]string{}, args...)
		root := p.Root()
		root.AddCommand(commands(p)...)
		return p.Execute(ctx, root, args)
	}
}

// Daemon is a monopod in this process with a fake runtime, real files and a real socket.
type Daemon struct {
	T   testing.TB
	Dir string
	// Fake, Pins and Images are the runtime of the daemon.
	Fake   *runtimetest.Fake
	Pins   *daemontest.Pinned
	Images *daemontest.FakeImages
	// Prog is the process of the daemon, Log what it logs.
	Prog *Process
	Log  *daemontest.SyncBuffer
	// Patience is the timeout for this daemon.
	Patience time.Duration

	commands Commands
	stop     context.CancelFunc
	code     chan int
}

// New prepares a daemon; Start runs it.
func New(t testing.TB, commands Commands, settings ...string) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp") // names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &Daemon{
		T: t, Dir: dir, Fake: runtimetest.NewFake(), Pins: &daemontest.Pinned{}, Images: daemontest.NewFakeImages(), Log: &daemontest.SyncBuffer{},
		Patience: daemontest.Patience, commands: commands,
	}
	lines := append([]string{
		"staticPodPath: manifests", "rootDirectory: root", "stateDirectory: run", "podLogsDir: logs/pods", "nodeName: test-node", "cniConfDir: cni", "logging: {level: debug}",
	}, settings...)
	testfiles.Write(t, d.Path("config.yaml"), strings.Join(lines, "\n")+"\n")
	if err := os.Mkdir(d.Path("manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.Prog = d.Program()
	d.Prog.Machine.VisibleTimeout = time.Hour // however slow the machine is, what an answer tells of can be seen
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return &daemontest.FakeRuntime{Fake: d.Fake, Pinned: d.Pins, Store: d.Images, RootDir: d.Path("container")}, nil
	}
	return d
}

// Path returns a path below the directory of the daemon.
func (d *Daemon) Path(elem ...string) string {
	return filepath.Join(append([]string{d.Dir}, elem...)...)
}

// Program returns the command line of root for the daemon.
func (d *Daemon) Program() *Process {
	p := &Process{Program: &program.Program{
		Stdin: strings.NewReader(""), Stdout: &daemontest.SyncBuffer{}, Stderr: &daemontest.SyncBuffer{}, Euid: func() int { return 0 },
		Env: config.Environment{Environ: []string{"MONOPOD_SOCKET=" + d.Path("run", "monopod.sock")}, WorkDir: d.Dir, Hostname: os.Hostname},
	}, Machine: daemon.Machine{Cgroups: daemontest.MountedCgroups, Addresses: func() ([]string, error) { return []string{"192.0.2.10", "2001:db8::10"}, nil }}}
	if _, measured := d.T.(*testing.B); !measured {
		p.Machine.Release = func() {} // it would collect the garbage of all tests that go on, and have the program read again
	}
	return p
}

// Client returns a client of the daemon.
func (d *Daemon) Client() *localclient.Client {
	return d.Program().Client(&program.ClientFlags{})
}

// Start runs the daemon and waits until it answers.
func (d *Daemon) Start() {
	d.T.Helper()
	d.StartOnly()
	d.Eventually("the socket answers", func() error {
		_, err := d.Client().Inputs(d.T.Context())
		return err
	})
}

// StartOnly is Start without waiting for the socket.
func (d *Daemon) StartOnly() {
	d.T.Helper()
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.code = stop, make(chan int, 1)
	d.Prog.Stderr = d.Log
	go func() { d.code <- d.commands(ctx, d.Prog, []string{"run", "--config", d.Path("config.yaml")}) }()
	d.T.Cleanup(func() { d.End() })
}

// End stops the daemon and returns its exit code.
func (d *Daemon) End() int {
	if d.stop == nil {
		return 0
	}
	d.stop()
	return d.Leaves()
}

// Leaves waits until the daemon has ended, and returns its exit code.
func (d *Daemon) Leaves() int {
	d.T.Helper()
	stop := d.stop
	d.stop = nil
	defer stop()
	select {
	case code := <-d.code:
		if code != 0 {
			d.T.Errorf("the daemon ended with code %d:\n%s", code, d.Log)
		}
		return code
	case <-time.After(d.Patience):
		d.T.Fatalf("the daemon does not end:\n%s", d.Log)
	}
	return -1
}

// Again restarts the daemon, which asks its sources at once then.
func (d *Daemon) Again() {
	d.T.Helper()
	d.End()
	d.Start()
}

// Result is what a command printed.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Printed returns a result.
func Printed(stdout, stderr string, code int) Result { return Result{stdout, stderr, code} }

// Cmd executes a client command.
func (d *Daemon) Cmd(args ...string) Result { return d.CmdContext(d.T.Context(), args...) }

// CmdContext is Cmd until the end of a context.
func (d *Daemon) CmdContext(ctx context.Context, args ...string) Result {
	return d.commands.Run(ctx, d.Program(), args...)
}

// Run executes a command of a program that prints into buffers.
func (c Commands) Run(ctx context.Context, p *Process, args ...string) Result {
	var out, errs bytes.Buffer
	p.Stdout, p.Stderr = &out, &errs
	code := c(ctx, p, args)
	return Result{out.String(), errs.String(), code}
}

// Put writes a manifest atomically.
func (d *Daemon) Put(name, text string) {
	d.T.Helper()
	tmp := d.Path("manifests", "."+name)
	testfiles.Write(d.T, tmp, text)
	if err := os.Rename(tmp, d.Path("manifests", name)); err != nil {
		d.T.Fatal(err)
	}
}

// Remove removes a manifest.
func (d *Daemon) Remove(name string) {
	d.T.Helper()
	if err := os.Remove(d.Path("manifests", name)); err != nil {
		d.T.Fatal(err)
	}
}

// File writes a file next to the daemon's and returns its path.
func (d *Daemon) File(name, text string) string {
	d.T.Helper()
	path := d.Path("files", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.T.Fatal(err)
	}
	testfiles.Write(d.T, path, text)
	return path
}

// Eventually polls a condition for which there is no notification.
func (d *Daemon) Eventually(what string, check func() error) {
	d.T.Helper()
	deadline := time.Now().Add(d.Patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 16*time.Millisecond) { // a check often costs as much as what it waits for
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.T.Fatalf("not so: %s: %v\n%s", what, err, d.Log)
		}
		time.Sleep(pause)
	}
}

// Shows waits until the output of a command contains want.
func (d *Daemon) Shows(want string, args ...string) Result {
	d.T.Helper()
	var r Result
	d.Eventually(fmt.Sprintf("%v shows %q", args, want), func() error {
		if r = d.Cmd(args...); !strings.Contains(r.Stdout, want) {
			if strings.Contains(r.Stderr, "unknown command "+strconv.Quote(args[0])) {
				d.T.Fatalf("the commands of this test lack `monopod %s`", args[0])
			}
			return fmt.Errorf("code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		return nil
	})
	return r
}

// Says runs a command and compares its output and exit code.
func (d *Daemon) Says(code int, stdout, stderr string, args ...string) {
	d.T.Helper()
	r := d.plain(d.Cmd(args...))
	if want := (Result{stdout, stderr, code}); r != want {
		d.T.Errorf("monopod %s: code %d, want %d\nstdout %q\n  want %q\nstderr %q\n  want %q", strings.Join(args, " "), r.Code, code, r.Stdout, stdout, r.Stderr, stderr)
	}
}

// plain replaces the directory of the daemon by $DIR.
func (d *Daemon) plain(r Result) Result {
	return Result{strings.ReplaceAll(r.Stdout, d.Dir, "$DIR"), strings.ReplaceAll(r.Stderr, d.Dir, "$DIR"), r.Code}
}

// SaysAtLast repeats a command until its exit code and output are those expected; a single run may time out first.
func (d *Daemon) SaysAtLast(code int, stdout, stderr string, args ...string) {
	d.T.Helper()
	want := Result{stdout, stderr, code}
	d.Eventually(fmt.Sprintf("monopod %s says %+v", strings.Join(args, " "), want), func() error {
		if r := d.plain(d.Cmd(args...)); r != want {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// Pod returns a pod of namespace default as the daemon reports it.
func (d *Daemon) Pod(name string) corev1.Pod {
	d.T.Helper()
	p, err := d.Client().Pod(d.T.Context(), "default", name)
	if err != nil {
		d.T.Fatal(err)
	}
	return *p
}

// Phase waits until `get pods` would have this word in column STATUS of a pod.
func (d *Daemon) Phase(name, want string) {
	d.T.Helper()
	d.Eventually(name+" is "+want, func() error {
		list, err := d.Client().Pods(d.T.Context(), "")
		if err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Name == name {
				if got := podtable.PodStatus(p); got != want {
					return errors.New(got)
				}
				return nil
			}
		}
		return fmt.Errorf("it is none of %d pods", len(list.Items))
	})
}

// Ready waits until a pod of namespace default is Ready.
func (d *Daemon) Ready(name string) {
	d.T.Helper()
	d.PodIs(name, "Ready", func(p *corev1.Pod) error {
		if !manifests.IsReady(p) {
			return errors.New(podtable.PodStatus(p))
		}
		return nil
	})
}

// PodIs waits until a pod of namespace default exists and check returns nil. what is the state in the message of a failure, such as Ready.
func (d *Daemon) PodIs(name, what string, check func(*corev1.Pod) error) {
	d.T.Helper()
	d.Eventually(name+" is "+what, func() error {
		p, err := d.Client().Pod(d.T.Context(), "default", name)
		if err != nil {
			return err
		}
		return check(p)
	})
}

// Gone waits until no pod has this name.
func (d *Daemon) Gone(name string) {
	d.T.Helper()
	d.Eventually(name+" is gone", func() error {
		list, err := d.Client().Pods(d.T.Context(), "")
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Name == name {
				return errors.New("it is not")
			}
		}
		return nil
	})
}

// RunsImage waits until pod web is Ready with one container of the image example.com/app:TAG.
func (d *Daemon) RunsImage(tag string) {
	d.T.Helper()
	d.Eventually("app:"+tag+" runs", func() error {
		p, err := d.Client().Pod(d.T.Context(), "default", "web")
		if err != nil {
			return err
		}
		if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].Image != "example.com/app:"+tag || !manifests.IsReady(p) {
			return errors.New(podtable.PodStatus(p))
		}
		return nil
	})
}
