package run

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
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
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	d.LogLines("web", "a", "2026-01-01T00:00:01Z stdout F one\n")
	results := make(chan clitest.Result, 2)
	var outs []*daemontest.SyncBuffer
	for _, args := range [][]string{{"get", "pods", "-w"}, {"logs", "-f", "web"}} {
		p := d.Program()
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Stdout, p.Stderr = out, errs
		outs = append(outs, out)
		go func() {
			code := commands(context.Background(), p, args)
			results <- clitest.Printed(out.String(), errs.String(), code)
		}()
	}
	d.Eventually("both clients have got something", func() error {
		if outs[0].String() == "" || outs[1].String() == "" {
			return errors.New("not yet")
		}
		return nil
	})
	d.End()
	for range 2 {
		select {
		case r := <-results:
			if strings.Contains(r.Stdout, "READY") && (r.Code != program.ExitError || !strings.Contains(r.Stderr, "monopod has exited")) {
				t.Errorf("get -w: code %d, %s", r.Code, r.Stderr)
			}
		case <-time.After(daemontest.Patience):
			t.Fatal("a client goes on")
		}
	}
	if _, err := os.Stat(d.Path("run", "monopod.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if !strings.Contains(d.Log.String(), "the pods keep running") {
		t.Errorf("the log does not say that pods keep running:\n%s", d.Log)
	}
	if s := d.Fake.State(manifests.Key{Namespace: "default", Name: "web"}); len(s.Containers) != 1 || s.Containers[0].State != runner.ContainerRunning {
		t.Errorf("the pod was touched: %+v", s)
	}
}

func TestASecondInstanceIsRefusedAndNamesTheFirst(t *testing.T) {
	d := newDaemon(t)
	d.Start()
	for name, config := range map[string]string{
		"same directories":      d.Path("config.yaml"),
		"same root only":        "stateDirectory: run2\nrootDirectory: root\nnodeName: x\n",
		"same state only":       "stateDirectory: run\nrootDirectory: root2\nnodeName: x\n",
		"same socket elsewhere": "stateDirectory: run3\nrootDirectory: root3\nsocket: run/monopod.sock\nnodeName: x\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := config
			if strings.Contains(config, "\n") {
				file = d.Path(strings.ReplaceAll(name, " ", "-") + ".yaml")
				testfiles.Write(t, file, config)
			}
			r := d.Cmd("run", "--config", file)
			wants := []string{"another monopod (pid " + strconv.Itoa(os.Getpid()) + ") uses " + d.Dir, "another process answers on it"}
			if r.Code != program.ExitError || !strings.Contains(r.Stderr, wants[0]) && !strings.Contains(r.Stderr, wants[1]) {
				t.Errorf("code %d: %s", r.Code, r.Stderr)
			}
		})
	}
	if r := d.Cmd("get", "pods"); r.Code != program.ExitOK {
		t.Errorf("the first does not answer any more: %s", r.Stderr)
	}
	d.End()
	d.Start() // the locks are free again, and a socket is made anew
}

func TestTheSocketIsForRootOnlyAndAStaleOneIsReplaced(t *testing.T) {
	d := newDaemon(t)
	if err := os.Mkdir(d.Path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Path("run", "monopod.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	d.Start()
	info, err := os.Stat(d.Path("run", "monopod.sock"))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket: %v %v", info.Mode(), err)
	}
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	d := newDaemon(t)
	p := d.Program()
	errs := &daemontest.SyncBuffer{}
	p.Stderr, p.Euid = errs, func() int { return 1000 }
	if code := commands(t.Context(), p, []string{"run", "--config", d.Path("config.yaml")}); code != program.ExitError || !strings.Contains(errs.String(), "must be started by root") {
		t.Errorf("not root: code %d: %s", code, errs)
	}
	testfiles.Write(t, d.Path("bad.yaml"), "maxPods: x\nfoo: 1\n")
	if r := d.Cmd("run", "--config", d.Path("bad.yaml")); r.Code != program.ExitUsage || strings.Count(r.Stderr, "\n") != 2 {
		t.Errorf("bad configuration: code %d: %s", r.Code, r.Stderr)
	}
	testfiles.Write(t, d.Path("file"), "")
	if r := d.Cmd("run", "--config", d.Path("config.yaml"), "--socket", d.Path("file")); r.Code != program.ExitError || !strings.Contains(r.Stderr, "a file of another type") {
		t.Errorf("no socket: code %d: %s", r.Code, r.Stderr)
	}
	if r := d.Cmd("run", "now"); r.Code != program.ExitUsage {
		t.Errorf("argument: code %d: %s", r.Code, r.Stderr)
	}
}

func TestWhileTheRuntimeCannotBeOpenedPodsAreUnknownAndItIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	var tries int
	up := make(chan struct{})
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		tries++
		select {
		case <-up:
			return &daemontest.FakeRuntime{Fake: d.Fake}, nil
		default:
			return nil, errors.New("containerd: no space left\non device")
		}
	}
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	r := d.Shows("no space left", "get", "pods", "-o", "wide")
	if !strings.Contains(r.Stdout, "Unknown") || strings.Count(r.Stdout, "\n") != 2 {
		t.Errorf("shown:\n%s", r.Stdout)
	}
	close(up)
	d.Shows("Running", "get", "pods")
	d.End()
	if n := strings.Count(d.Log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors were logged for one trouble in %d tries:\n%s", n, tries, d.Log)
	}
}

func TestASlowRuntimeIsNamedAndASignalDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "containerRuntimeEndpoint: unix:///no/such.sock")
	d.Prog.Machine.Open = func(ctx context.Context, _ *config.Loaded, _ containers.Deps) (containers.Runtime, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("containerd at unix:///no/such.sock has not answered yet", "get", "pods", "-o", "wide")
	d.End()
}

func TestARuntimeThatEndsIsOpenedAgain(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	fail := make(chan error)
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return &endingRuntime{daemontest.FakeRuntime{Fake: d.Fake}, fail}, nil
	}
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	id := d.Pod("web").Status.ContainerStatuses[0].ContainerID
	fail <- errors.New("lost everything")
	d.Eventually("it is opened again", func() error {
		if !strings.Contains(d.Log.String(), "lost everything") {
			return errors.New("not noticed yet")
		}
		return nil
	})
	d.Shows("Running", "get", "pods")
	if now := d.Pod("web").Status.ContainerStatuses[0].ContainerID; now != id {
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
		signals []syscall.Signal // a stuck one gets the last again and again
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
			child := d.Child(c.stuck, "sh", "-c", `[ -z "$1" ] || trap "" $1; exec "$0"`, "{}", c.ignored)
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = child.Process.Kill() }()
			d.Shows("Accepted", "get", "sources")
			for i, s := range c.signals {
				if i > 0 && c.ignored == "" {
					d.Eventually("it is stopping", func() error {
						if r := d.Cmd("get", "pods"); r.Code == 0 {
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
			again, late := time.NewTicker(20*time.Millisecond), time.After(daemontest.Patience)
			defer again.Stop()
			for running := true; running; {
				select {
				case err := <-done:
					t.Logf("it ended: %v", err)
					running = false
				case <-again.C: // for a second, another signal is the first one again
					if c.stuck {
						_ = child.Process.Signal(c.signals[len(c.signals)-1])
					}
				case <-late:
					t.Fatalf("it does not end:\n%s", d.Log)
				}
			}
			if got := child.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d:\n%s", got, c.code, d.Log)
			}
		})
	}
}

func TestAnEditIsFollowedAndABadEditOnlyReported(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	before := d.Pod("web")
	d.Put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n")
	r := d.Shows("Refused", "get", "sources")
	if !strings.Contains(r.Stdout, d.Path("manifests", "web.yaml")) {
		t.Errorf("sources:\n%s", r.Stdout)
	}
	d.Shows("Input Refused", "describe", "pod", "web")
	if now := d.Pod("web"); now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID || podtable.PodStatus(&now) != "Running" {
		t.Errorf("the pod was touched: %s", podtable.PodStatus(&now))
	}
	d.Put("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1))
	d.PodIs("web", "running the new image", func(now *corev1.Pod) error {
		if now.Status.ContainerStatuses[0].Image != "example.com/app:2" || podtable.PodStatus(now) != "Running" {
			return errors.New(now.Status.ContainerStatuses[0].Image)
		}
		return nil
	})
}
