package describe

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/runner/runtimetest"
)

// lines returns the lines of a table with single spaces, without the first column and the header.
func tableLines(table string) string {
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		f := strings.Fields(line)
		for i, word := range f {
			if word == corev1.EventTypeNormal || word == corev1.EventTypeWarning {
				out = append(out, strings.Join(f[i:], " "))
				break
			}
		}
	}
	return strings.Join(out, "\n")
}

func TestEventsTellTheLifeOfPods(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Put("crash.yaml", daemontest.PodYAML("crash", runtimetest.ScriptFail))
	d.Start()
	d.Shows("Normal   Started", "events", "web")
	d.Shows("Warning   BackOff", "events", "crash")
	got := d.Cmd("events", "pod/web")
	for _, want := range []string{
		"Normal Created default pod/web{a} Container created",
		"Normal Started default pod/web{a} Container started",
	} {
		if !strings.Contains(tableLines(got.Stdout), want) || strings.Contains(got.Stdout, "crash") {
			t.Errorf("no %q in\n%s", want, got.Stdout)
		}
	}
	all := d.Shows("Starting monopod", "events")
	if !strings.Contains(tableLines(all.Stdout), "Normal Starting - node/test-node Starting monopod") || !strings.Contains(all.Stdout, "pod/crash{a}") {
		t.Errorf("all:\n%s", all.Stdout)
	}
	if r := d.Cmd("events", "-n", "default"); strings.Contains(r.Stdout, "test-node") || !strings.Contains(r.Stdout, "pod/web") {
		t.Errorf("of a namespace:\n%s", r.Stdout)
	}
	if r := d.Cmd("events", "-n", "nothing"); r.Code != program.ExitOK || r.Stdout != "" || !strings.Contains(r.Stderr, "No events found") {
		t.Errorf("of an empty namespace: %+v", r)
	}
	var list corev1.EventList
	if r := d.Cmd("events", "crash", "-o", "json"); json.Unmarshal([]byte(r.Stdout), &list) != nil || list.Kind != "EventList" || len(list.Items) < 4 {
		t.Errorf("json:\n%s", r.Stdout)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name != "crash" || e.InvolvedObject.UID == "" || e.Source.Host != "test-node" || e.LastTimestamp.IsZero() {
			t.Errorf("event %+v", e)
		}
	}
	described := d.Shows("\nEvents:", "describe", "pod", "web").Stdout
	if _, shown, _ := strings.Cut(described, "\nEvents:\n"); !strings.Contains(shown, "Started") || !strings.Contains(shown, "Container started") {
		t.Errorf("describe:\n%s", described)
	}
	if r := d.Cmd("events", "--record", "x", "-w"); r.Code != program.ExitUsage {
		t.Errorf("both: %+v", r)
	}
}

func TestEventsOfInputs(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Put("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	d.Start()
	d.Shows("broken.yaml:6:", "events")
	d.Shows("Started", "events", "web")
	d.Put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n")
	d.Shows("InputRefused", "events", "web") // it runs as it was
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	r := d.Shows("It is accepted again", "events", "web")
	if !strings.Contains(tableLines(r.Stdout), "Normal InputAccepted default pod/web "+d.Path("manifests", "web.yaml")+": It is accepted again") {
		t.Errorf("events:\n%s", r.Stdout)
	}
	if err := os.Remove(d.Path("manifests", "broken.yaml")); err != nil {
		t.Fatal(err)
	}
	r = d.Shows("InputGone", "events")
	for _, want := range []string{
		"Warning InputRefused - " + d.Path("manifests", "broken.yaml"),
		"Normal InputGone - " + d.Path("manifests", "broken.yaml") + " It was removed",
		"Normal InputAccepted - " + d.Path("manifests", "web.yaml") + " It is accepted again",
	} {
		if !strings.Contains(tableLines(r.Stdout), want) {
			t.Errorf("no %q in\n%s", want, r.Stdout)
		}
	}
}

func TestEventsAreReadFromDiskWhenMonopodDoesNotRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Started", "events", "web")
	running := d.Cmd("events", "web").Stdout
	d.End()
	r := d.Cmd("events", "--record", d.Path("root", "events"), "web")
	if r.Code != program.ExitOK || tableLines(r.Stdout) != tableLines(running) {
		t.Errorf("from disk (code %d):\n%s%s\nwhile it ran:\n%s", r.Code, r.Stdout, r.Stderr, running)
	}
	p := d.Program()
	p.Env.Environ = append(p.Env.Environ, "MONOPOD_CONFIG="+d.Path("config.yaml"))
	out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
	p.Stdout, p.Stderr = out, errs
	if code := commands(t.Context(), p, []string{"events"}); code != program.ExitOK || !strings.Contains(out.String(), "Stopping monopod; the pods keep running") ||
		!strings.Contains(errs.String(), "events on disk, in "+d.Path("root", "events")) {
		t.Errorf("code %d:\n%s%s", code, out, errs)
	}
	if code := commands(t.Context(), p, []string{"events", "-w"}); code != program.ExitError {
		t.Errorf("-w without a daemon: code %d", code)
	}
	d.Start() // and they are there again
	d.Shows("(x2 over", "events")
	if r := d.Cmd("events", "web"); tableLines(r.Stdout) != tableLines(running) {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", r.Stdout, running)
	}
}

func TestEventsTellThatContainerdIsLostAndBack(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	up := make(chan struct{})
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		select {
		case <-up:
			return &daemontest.FakeRuntime{Fake: d.Fake}, nil
		default:
			return nil, errors.New("dial unix /run/containerd.sock: no such file")
		}
	}
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("ContainerdUnreachable", "events")
	close(up)
	r := d.Shows("ContainerdReachable", "events")
	if got := tableLines(r.Stdout); strings.Count(got, "Warning ContainerdUnreachable - node/test-node the container runtime does not respond: dial unix") != 1 {
		t.Errorf("events:\n%s", got)
	}
}

func TestEventsAreFollowed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	p := d.Program()
	out := &daemontest.SyncBuffer{}
	p.Stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- commands(ctx, p, []string{"events", "-w"}) }()
	shown := func(want string) {
		t.Helper()
		d.Eventually(want, func() error {
			if !strings.Contains(out.String(), want) {
				return errors.New(out.String())
			}
			return nil
		})
	}
	shown("Starting monopod")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	shown("Container started")
	cancel()
	if c := <-code; c != program.ExitOK {
		t.Errorf("code %d", c)
	}
}
