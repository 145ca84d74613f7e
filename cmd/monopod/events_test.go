package main

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
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.put("crash.yaml", daemontest.PodYAML("crash", runtimetest.ScriptFail))
	d.start()
	d.shows("Normal   Started", "events", "web")
	d.shows("Warning   BackOff", "events", "crash")
	got := d.cmd("events", "pod/web")
	for _, want := range []string{
		"Normal Created default pod/web{a} Container created",
		"Normal Started default pod/web{a} Container started",
	} {
		if !strings.Contains(tableLines(got.stdout), want) || strings.Contains(got.stdout, "crash") {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	all := d.shows("Starting monopod", "events")
	if !strings.Contains(tableLines(all.stdout), "Normal Starting - node/test-node Starting monopod") || !strings.Contains(all.stdout, "pod/crash{a}") {
		t.Errorf("all:\n%s", all.stdout)
	}
	if r := d.cmd("events", "-n", "default"); strings.Contains(r.stdout, "test-node") || !strings.Contains(r.stdout, "pod/web") {
		t.Errorf("of a namespace:\n%s", r.stdout)
	}
	if r := d.cmd("events", "-n", "nothing"); r.code != program.ExitOK || r.stdout != "" || !strings.Contains(r.stderr, "No events found") {
		t.Errorf("of an empty namespace: %+v", r)
	}
	var list corev1.EventList
	if r := d.cmd("events", "crash", "-o", "json"); json.Unmarshal([]byte(r.stdout), &list) != nil || list.Kind != "EventList" || len(list.Items) < 4 {
		t.Errorf("json:\n%s", r.stdout)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name != "crash" || e.InvolvedObject.UID == "" || e.Source.Host != "test-node" || e.LastTimestamp.IsZero() {
			t.Errorf("event %+v", e)
		}
	}
	described := d.shows("\nEvents:", "describe", "pod", "web").stdout
	if _, shown, _ := strings.Cut(described, "\nEvents:\n"); !strings.Contains(shown, "Started") || !strings.Contains(shown, "Container started") {
		t.Errorf("describe:\n%s", described)
	}
	if r := d.cmd("events", "--record", "x", "-w"); r.code != program.ExitUsage {
		t.Errorf("both: %+v", r)
	}
}

func TestEventsOfInputs(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.put("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	d.start()
	d.shows("broken.yaml:6:", "events")
	d.shows("Started", "events", "web")
	d.put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n")
	d.shows("InputRefused", "events", "web") // it runs as it was
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	r := d.shows("It is accepted again", "events", "web")
	if !strings.Contains(tableLines(r.stdout), "Normal InputAccepted default pod/web "+d.path("manifests", "web.yaml")+": It is accepted again") {
		t.Errorf("events:\n%s", r.stdout)
	}
	if err := os.Remove(d.path("manifests", "broken.yaml")); err != nil {
		t.Fatal(err)
	}
	r = d.shows("InputGone", "events")
	for _, want := range []string{
		"Warning InputRefused - " + d.path("manifests", "broken.yaml"),
		"Normal InputGone - " + d.path("manifests", "broken.yaml") + " It is gone",
		"Normal InputAccepted - " + d.path("manifests", "web.yaml") + " It is accepted again",
	} {
		if !strings.Contains(tableLines(r.stdout), want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
}

func TestEventsAreReadFromDiskWhenMonopodDoesNotRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Started", "events", "web")
	running := d.cmd("events", "web").stdout
	d.end()
	r := d.cmd("events", "--record", d.path("root", "events"), "web")
	if r.code != program.ExitOK || tableLines(r.stdout) != tableLines(running) {
		t.Errorf("from disk (code %d):\n%s%s\nwhile it ran:\n%s", r.code, r.stdout, r.stderr, running)
	}
	p := d.program()
	p.Env.Environ = append(p.Env.Environ, "MONOPOD_CONFIG="+d.path("config.yaml"))
	out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
	p.Stdout, p.Stderr = out, errs
	if code := NewCommands(p).run(t.Context(), []string{"events"}); code != program.ExitOK || !strings.Contains(out.String(), "Stopping monopod; the pods keep running") ||
		!strings.Contains(errs.String(), "events on disk, in "+d.path("root", "events")) {
		t.Errorf("code %d:\n%s%s", code, out, errs)
	}
	if code := NewCommands(p).run(t.Context(), []string{"events", "-w"}); code != program.ExitError {
		t.Errorf("-w without a daemon: code %d", code)
	}
	d.start() // and they are there again
	d.shows("(x2 over", "events")
	if r := d.cmd("events", "web"); tableLines(r.stdout) != tableLines(running) {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", r.stdout, running)
	}
}

func TestEventsTellThatContainerdIsLostAndBack(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	up := make(chan struct{})
	d.prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		select {
		case <-up:
			return &daemontest.FakeRuntime{Fake: d.fake}, nil
		default:
			return nil, errors.New("dial unix /run/containerd.sock: no such file")
		}
	}
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("ContainerdUnreachable", "events")
	close(up)
	r := d.shows("ContainerdReachable", "events")
	if got := tableLines(r.stdout); strings.Count(got, "Warning ContainerdUnreachable - node/test-node containers cannot be seen or changed: dial unix") != 1 {
		t.Errorf("events:\n%s", got)
	}
}

func TestEventsAreFollowed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	p := d.program()
	out := &daemontest.SyncBuffer{}
	p.Stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- NewCommands(p).run(ctx, []string{"events", "-w"}) }()
	shown := func(want string) {
		t.Helper()
		d.eventually(want, func() error {
			if !strings.Contains(out.String(), want) {
				return errors.New(out.String())
			}
			return nil
		})
	}
	shown("Starting monopod")
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	shown("Container started")
	cancel()
	if c := <-code; c != program.ExitOK {
		t.Errorf("code %d", c)
	}
}
