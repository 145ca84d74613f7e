package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

func TestTheDaemonEndsWhileClientsWatchAndFollow(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Running", "get", "pods")
	d.logLines("web", "a", "2026-01-01T00:00:01Z stdout F one\n")
	results := make(chan result, 2)
	var outs []*daemontest.SyncBuffer
	for _, args := range [][]string{{"get", "pods", "-w"}, {"logs", "-f", "web"}} {
		p := d.program()
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Stdout, p.Stderr = out, errs
		outs = append(outs, out)
		go func() {
			code := NewCommands(p).run(context.Background(), args)
			results <- result{out.String(), errs.String(), code}
		}()
	}
	d.eventually("both clients have got something", func() error {
		if outs[0].String() == "" || outs[1].String() == "" {
			return errors.New("not yet")
		}
		return nil
	})
	d.end()
	for range 2 {
		select {
		case r := <-results:
			if strings.Contains(r.stdout, "READY") && (r.code != program.ExitError || !strings.Contains(r.stderr, "monopod has ended")) {
				t.Errorf("get -w: code %d, %s", r.code, r.stderr)
			}
		case <-time.After(daemontest.Patience):
			t.Fatal("a client goes on")
		}
	}
	if _, err := os.Stat(d.path("run", "monopod.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if !strings.Contains(d.log.String(), "the pods keep running") {
		t.Errorf("the log does not say that pods keep running:\n%s", d.log)
	}
	if s := d.fake.State(manifests.Key{Namespace: "default", Name: "web"}); len(s.Containers) != 1 || s.Containers[0].State != runner.ContainerRunning {
		t.Errorf("the pod was touched: %+v", s)
	}
}

func TestASecondInstanceIsRefusedAndNamesTheFirst(t *testing.T) {
	d := newDaemon(t)
	d.start()
	for name, config := range map[string]string{
		"same directories":      d.path("config.yaml"),
		"same root only":        "stateDirectory: run2\nrootDirectory: root\nnodeName: x\n",
		"same state only":       "stateDirectory: run\nrootDirectory: root2\nnodeName: x\n",
		"same socket elsewhere": "stateDirectory: run3\nrootDirectory: root3\nsocket: run/monopod.sock\nnodeName: x\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := config
			if strings.Contains(config, "\n") {
				file = d.path(strings.ReplaceAll(name, " ", "-") + ".yaml")
				testfiles.Write(t, file, config)
			}
			r := d.cmd("run", "--config", file)
			wants := []string{"another monopod (pid " + strconv.Itoa(os.Getpid()) + ") uses " + d.dir, "another process answers on it"}
			if r.code != program.ExitError || !strings.Contains(r.stderr, wants[0]) && !strings.Contains(r.stderr, wants[1]) {
				t.Errorf("code %d: %s", r.code, r.stderr)
			}
		})
	}
	if r := d.cmd("get", "pods"); r.code != program.ExitOK {
		t.Errorf("the first does not answer any more: %s", r.stderr)
	}
	d.end()
	d.start() // the locks are free again, and a socket is made anew
}

func TestTheSocketIsForRootOnlyAndAStaleOneIsReplaced(t *testing.T) {
	d := newDaemon(t)
	if err := os.Mkdir(d.path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path("run", "monopod.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	d.start()
	info, err := os.Stat(d.path("run", "monopod.sock"))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket: %v %v", info.Mode(), err)
	}
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	d := newDaemon(t)
	p := d.program()
	errs := &daemontest.SyncBuffer{}
	p.Stderr, p.Euid = errs, func() int { return 1000 }
	if code := NewCommands(p).run(t.Context(), []string{"run", "--config", d.path("config.yaml")}); code != program.ExitError || !strings.Contains(errs.String(), "must be started by root") {
		t.Errorf("not root: code %d: %s", code, errs)
	}
	testfiles.Write(t, d.path("bad.yaml"), "maxPods: x\nfoo: 1\n")
	if r := d.cmd("run", "--config", d.path("bad.yaml")); r.code != program.ExitUsage || strings.Count(r.stderr, "\n") != 2 {
		t.Errorf("bad configuration: code %d: %s", r.code, r.stderr)
	}
	testfiles.Write(t, d.path("file"), "")
	if r := d.cmd("run", "--config", d.path("config.yaml"), "--socket", d.path("file")); r.code != program.ExitError || !strings.Contains(r.stderr, "a file of another kind") {
		t.Errorf("no socket: code %d: %s", r.code, r.stderr)
	}
	if r := d.cmd("run", "now"); r.code != program.ExitUsage {
		t.Errorf("argument: code %d: %s", r.code, r.stderr)
	}
}

func TestWhileTheRuntimeCannotBeOpenedPodsAreUnknownAndItIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	var tries int
	up := make(chan struct{})
	d.prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		tries++
		select {
		case <-up:
			return &daemontest.FakeRuntime{Fake: d.fake}, nil
		default:
			return nil, errors.New("containerd: no space left\non device")
		}
	}
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	r := d.shows("no space left", "get", "pods", "-o", "wide")
	if !strings.Contains(r.stdout, "Unknown") || strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("shown:\n%s", r.stdout)
	}
	close(up)
	d.shows("Running", "get", "pods")
	d.end()
	if n := strings.Count(d.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors were logged for one trouble in %d tries:\n%s", n, tries, d.log)
	}
}

func TestASlowRuntimeIsNamedAndASignalDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "containerRuntimeEndpoint: unix:///no/such.sock")
	d.prog.Machine.Open = func(ctx context.Context, _ *config.Loaded, _ containers.Deps) (containers.Runtime, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("containerd at unix:///no/such.sock has not answered yet", "get", "pods", "-o", "wide")
	d.end()
}

func TestARuntimeThatEndsIsOpenedAgain(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	fail := make(chan error)
	d.prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return &endingRuntime{daemontest.FakeRuntime{Fake: d.fake}, fail}, nil
	}
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Running", "get", "pods")
	id := d.pod("web").Status.ContainerStatuses[0].ContainerID
	fail <- errors.New("lost everything")
	d.eventually("it is opened again", func() error {
		if !strings.Contains(d.log.String(), "lost everything") {
			return errors.New("not noticed yet")
		}
		return nil
	})
	d.shows("Running", "get", "pods")
	if now := d.pod("web").Status.ContainerStatuses[0].ContainerID; now != id {
		t.Errorf("the container is %s, was %s", now, id)
	}
}

// endingRuntime fails on request.
type endingRuntime struct {
	daemontest.FakeRuntime
	fail chan error
}

func (r *endingRuntime) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.fail:
		return err
	}
}

func TestSignalsEndTheProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stuck   bool
		signals []syscall.Signal
		code    int
		ignored string // what the shell that starts it has it ignore
	}{
		"SIGTERM stops it":                              {false, []syscall.Signal{syscall.SIGTERM}, 0, ""},
		"SIGINT stops it":                               {false, []syscall.Signal{syscall.SIGINT}, 0, ""},
		"a second signal does not wait":                 {true, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, program.ExitSignal, ""},
		"a second signal may be another than the first": {true, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, program.ExitSignal, ""},
		"one that was started to ignore SIGINT and SIGHUP, as a background job is, ends for neither": {false, []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM}, 0, "INT HUP"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			child := exec.Command("sh", "-c", `[ -z "$1" ] || trap "" $1; exec "$0"`, exe, c.ignored)
			child.Env = append(os.Environ(), actAsMonopod+"="+d.path("config.yaml"))
			if c.stuck {
				child.Env = append(child.Env, actStuck+"=1")
			}
			child.Stderr = d.log
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = child.Process.Kill() }()
			d.shows("Accepted", "get", "sources")
			for i, s := range c.signals {
				if i > 0 && c.ignored == "" {
					d.eventually("it is stopping", func() error {
						if r := d.cmd("get", "pods"); r.code == 0 {
							return errors.New("it still answers")
						}
						return nil
					})
				}
				if err := child.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() { done <- child.Wait() }()
			select {
			case err := <-done:
				t.Logf("it ended: %v", err)
			case <-time.After(daemontest.Patience):
				t.Fatalf("it does not end:\n%s", d.log)
			}
			if got := child.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d:\n%s", got, c.code, d.log)
			}
		})
	}
}

func TestAnEditIsFollowedAndABadEditOnlyReported(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Running", "get", "pods")
	before := d.pod("web")
	d.put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n")
	r := d.shows("Refused", "get", "sources")
	if !strings.Contains(r.stdout, d.path("manifests", "web.yaml")) {
		t.Errorf("sources:\n%s", r.stdout)
	}
	d.shows("Input Refused", "describe", "pod", "web")
	if now := d.pod("web"); now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID || podtable.PodStatus(&now) != "Running" {
		t.Errorf("the pod was touched: %s", podtable.PodStatus(&now))
	}
	d.put("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1))
	d.eventually("the new image runs", func() error {
		if now := d.pod("web"); now.Status.ContainerStatuses[0].Image != "example.com/app:2" || podtable.PodStatus(&now) != "Running" {
			return errors.New(now.Status.ContainerStatuses[0].Image)
		}
		return nil
	})
}
