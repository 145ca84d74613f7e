package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// actAsMonopod makes the test binary a daemon with a fake runtime; its value is the path of the configuration file.
const (
	actAsMonopod = "TEST_ACT_AS_MONOPOD"
	actStuck     = "TEST_STUCK"
)

// actAsDaemon is the main function of the child process.
func actAsDaemon() {
	p := newProgram()
	p.Euid = func() int { return 0 }
	p.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		fake := runtimetest.NewFake()
		fake.Forgetful = true
		return &daemontest.FakeRuntime{Fake: fake, Stuck: os.Getenv(actStuck) != ""}, nil
	}
	os.Exit(execute(p, []string{"run", "--config", os.Getenv(actAsMonopod)}))
}

// testDaemon is a monopod in this process with a fake runtime, real files and a real socket.
type testDaemon struct {
	t    testing.TB
	dir  string
	fake *runtimetest.Fake
	pins *daemontest.Pinned
	imgs *daemontest.FakeImages
	prog *program.Program
	log  *daemontest.SyncBuffer
	stop context.CancelFunc
	code chan int
	// patience is the timeout for this daemon.
	patience time.Duration
}

// newDaemon prepares a daemon; start runs it.
func newDaemon(t testing.TB, settings ...string) *testDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp") // names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &testDaemon{t: t, dir: dir, fake: runtimetest.NewFake(), pins: &daemontest.Pinned{}, imgs: daemontest.NewFakeImages(), log: &daemontest.SyncBuffer{}, patience: daemontest.Patience}
	lines := append([]string{
		"staticPodPath: manifests", "rootDirectory: root", "stateDirectory: run", "podLogsDir: logs/pods", "nodeName: test-node", "cniConfDir: cni", "logging: {level: debug}",
	}, settings...)
	testfiles.Write(t, d.path("config.yaml"), strings.Join(lines, "\n")+"\n")
	if err := os.Mkdir(d.path("manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.prog = d.program()
	d.prog.Machine.VisibleTimeout = time.Hour // however slow the machine is, what an answer tells of can be seen
	d.prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return &daemontest.FakeRuntime{Fake: d.fake, Pinned: d.pins, Store: d.imgs, RootDir: d.path("container")}, nil
	}
	return d
}

func (d *testDaemon) path(elem ...string) string {
	return filepath.Join(append([]string{d.dir}, elem...)...)
}

// program returns the command line of root for the daemon.
func (d *testDaemon) program() *program.Program {
	p := &program.Program{
		Stdin: strings.NewReader(""), Stdout: &daemontest.SyncBuffer{}, Stderr: &daemontest.SyncBuffer{}, Euid: func() int { return 0 },
		Machine: daemon.Machine{Cgroups: daemontest.MountedCgroups, Addresses: func() ([]string, error) { return []string{"192.0.2.10", "2001:db8::10"}, nil }},
		Env:     config.Environment{Environ: []string{"MONOPOD_SOCKET=" + d.path("run", "monopod.sock")}, WorkDir: d.dir, Hostname: os.Hostname},
	}
	if _, measured := d.t.(*testing.B); !measured {
		p.Machine.Release = func() {} // it would collect the garbage of all tests that go on, and have the program read again
	}
	return p
}

func (d *testDaemon) start() {
	d.t.Helper()
	d.startOnly()
	d.eventually("the socket answers", func() error {
		if r := d.cmd("get", "sources"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
}

// startOnly is start without waiting for the socket.
func (d *testDaemon) startOnly() {
	d.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.code = stop, make(chan int, 1)
	d.prog.Stderr = d.log
	go func() { d.code <- NewCommands(d.prog).run(ctx, []string{"run", "--config", d.path("config.yaml")}) }()
	d.t.Cleanup(func() { d.end() })
}

// end stops the daemon and returns its exit code.
func (d *testDaemon) end() int {
	if d.stop == nil {
		return 0
	}
	d.stop()
	d.stop = nil
	select {
	case code := <-d.code:
		if code != 0 {
			d.t.Errorf("the daemon ended with code %d:\n%s", code, d.log)
		}
		return code
	case <-time.After(d.patience):
		d.t.Fatalf("the daemon does not end:\n%s", d.log)
	}
	return -1
}

// result is what a command printed.
type result struct {
	stdout, stderr string
	code           int
}

// cmd executes a client command.
func (d *testDaemon) cmd(args ...string) result { return d.cmdContext(d.t.Context(), args...) }

func (d *testDaemon) cmdContext(ctx context.Context, args ...string) result {
	p := d.program()
	var out, errs bytes.Buffer
	p.Stdout, p.Stderr = &out, &errs
	code := NewCommands(p).run(ctx, args)
	return result{out.String(), errs.String(), code}
}

// put writes a manifest atomically.
func (d *testDaemon) put(name, text string) {
	d.t.Helper()
	tmp := d.path("manifests", "."+name)
	testfiles.Write(d.t, tmp, text)
	if err := os.Rename(tmp, d.path("manifests", name)); err != nil {
		d.t.Fatal(err)
	}
}

// eventually polls a condition for which there is no notification.
func (d *testDaemon) eventually(what string, check func() error) {
	d.t.Helper()
	deadline := time.Now().Add(d.patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 16*time.Millisecond) { // a check often costs as much as what it waits for
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("not so: %s: %v\n%s", what, err, d.log)
		}
		time.Sleep(pause)
	}
}

// shows waits until the output of a command contains want.
func (d *testDaemon) shows(want string, args ...string) result {
	d.t.Helper()
	var r result
	d.eventually(fmt.Sprintf("%v shows %q", args, want), func() error {
		if r = d.cmd(args...); !strings.Contains(r.stdout, want) {
			return fmt.Errorf("code %d:\n%s%s", r.code, r.stdout, r.stderr)
		}
		return nil
	})
	return r
}

var (
	uuids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	stamps   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	ages     = regexp.MustCompile(`\b\d+(ms|s|m)\b( ago)?`)
	ids      = regexp.MustCompile(`containerd://c\d+`)
	happened = regexp.MustCompile(`(?s)\nEvents:\n  TYPE .*`)
	podIPs   = regexp.MustCompile(`\b10\.0\.0\.\d+`)
	nextTry  = regexp.MustCompile(`(Next Try: +)now\b`) // the clock of the daemon stands still, that of a client does not
	again    = regexp.MustCompile(`\bagain now\b`)
	spaces   = regexp.MustCompile(`(\S) {2,}`)
)

// steady replaces text that differs in each run.
func (d *testDaemon) steady(s string) string {
	s = ownText(strings.ReplaceAll(s, d.dir, "$DIR"))
	s = happened.ReplaceAllString(s, "\nEvents: ...\n")
	s = uuids.ReplaceAllString(s, "UID")
	s = stamps.ReplaceAllString(s, "TIME")
	s = ages.ReplaceAllString(s, "AGE")
	s = ids.ReplaceAllString(s, "containerd://ID")
	s = podIPs.ReplaceAllString(s, "POD-IP")
	s = again.ReplaceAllString(nextTry.ReplaceAllString(s, "${1}TIME (in AGE)"), "again in AGE")
	return spaces.ReplaceAllString(s, "$1  ")
}
