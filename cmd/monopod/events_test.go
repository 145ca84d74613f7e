package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/node/events"
	"monopod/runner/runtimetest"
	"monopod/watcher"
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
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
	d.put("crash.yaml", podYAML("crash", runtimetest.ScriptFail))
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
	if r := d.cmd("events", "-n", "nothing"); r.code != exitOK || r.stdout != "" || !strings.Contains(r.stderr, "No events found") {
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
	if r := d.cmd("events", "--record", "x", "-w"); r.code != exitUsage {
		t.Errorf("both: %+v", r)
	}
}

func TestEventsOfInputs(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
	d.put("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	d.start()
	d.shows("broken.yaml:6:", "events")
	d.shows("Started", "events", "web")
	d.put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n")
	d.shows("InputRefused", "events", "web") // it runs as it was
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
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

func TestWhichInputsAreToldOf(t *testing.T) {
	report := func(state watcher.ReportState, errs ...string) watcher.Report {
		return watcher.Report{Source: "file", Input: "/m/a.yaml", State: state, Errors: errs, Pods: []string{"x/a"}}
	}
	var told []string
	r := recorderFunc(func(o corev1.ObjectReference, eventType, reason, message string) {
		told = append(told, fmt.Sprint(eventType[:1], " ", reason, " ", o.Kind, " ", o.Namespace, "/", o.Name, " ", message))
	})
	known := map[inputKey]watcher.Report{}
	for _, step := range []struct {
		now  []watcher.Report
		want string
	}{
		{[]watcher.Report{report(watcher.Accepted)}, ""},
		{[]watcher.Report{report(watcher.Refused, "/m/a.yaml:3: bad", "/m/a.yaml:4: worse")}, "W InputRefused Input //m/a.yaml /m/a.yaml:3: bad\n/m/a.yaml:4: worse|W InputRefused Pod x/a /m/a.yaml:3: bad\n/m/a.yaml:4: worse"},
		{[]watcher.Report{report(watcher.Refused, "/m/a.yaml:3: bad", "/m/a.yaml:4: worse")}, ""},
		{[]watcher.Report{report(watcher.Unreachable, "no such host")}, "W InputUnreachable Input //m/a.yaml no such host|W InputUnreachable Pod x/a /m/a.yaml: no such host"},
		{[]watcher.Report{report(watcher.Accepted)}, "N InputAccepted Input //m/a.yaml It is accepted again|N InputAccepted Pod x/a /m/a.yaml: It is accepted again"},
		{[]watcher.Report{report(watcher.Accepted)}, ""},
		{[]watcher.Report{report(watcher.Conflict, "twice")}, "W InputConflict Input //m/a.yaml twice|W InputConflict Pod x/a /m/a.yaml: twice"},
		{nil, "N InputGone Input //m/a.yaml It is gone"},
		{nil, ""},
	} {
		told = nil
		known = recordInputs(r, known, step.now)
		if got := strings.Join(told, "|"); got != step.want {
			t.Errorf("%+v:\n%s\nwanted\n%s", step.now, got, step.want)
		}
	}
	many := report(watcher.Refused, "bad")
	for i := range 100 {
		many.Pods = append(many.Pods, fmt.Sprint("x/", i))
	}
	told = nil
	recordInputs(r, nil, []watcher.Report{many})
	if len(told) != 1+maxPodsOfInput {
		t.Errorf("%d events of one input", len(told))
	}
}

// recorderFunc is an eventRecorder.
type recorderFunc func(corev1.ObjectReference, string, string, string)

func (f recorderFunc) Event(o corev1.ObjectReference, eventType, reason, message string) {
	f(o, eventType, reason, message)
}

func TestEventsAreReadFromDiskWhenMonopodDoesNotRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Started", "events", "web")
	running := d.cmd("events", "web").stdout
	d.end()
	r := d.cmd("events", "--record", d.path("root", "events"), "web")
	if r.code != exitOK || tableLines(r.stdout) != tableLines(running) {
		t.Errorf("from disk (code %d):\n%s%s\nwhile it ran:\n%s", r.code, r.stdout, r.stderr, running)
	}
	p := d.program()
	p.env.Environ = append(p.env.Environ, "MONOPOD_CONFIG="+d.path("config.yaml"))
	out, errs := &syncBuffer{}, &syncBuffer{}
	p.stdout, p.stderr = out, errs
	if code := p.run(t.Context(), []string{"events"}); code != exitOK || !strings.Contains(out.String(), "Stopping monopod; the pods keep running") ||
		!strings.Contains(errs.String(), "events on disk, in "+d.path("root", "events")) {
		t.Errorf("code %d:\n%s%s", code, out, errs)
	}
	if code := p.run(t.Context(), []string{"events", "-w"}); code != exitError {
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
	d.prog.machine.open = func(context.Context, *config.Loaded, *slog.Logger) (Runtime, error) {
		select {
		case <-up:
			return &fakeRuntime{Fake: d.fake}, nil
		default:
			return nil, errors.New("dial unix /run/containerd.sock: no such file")
		}
	}
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
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
	out := &syncBuffer{}
	p.stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- p.run(ctx, []string{"events", "-w"}) }()
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
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
	shown("Container started")
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("code %d", c)
	}
}

func TestHowAnEventIsPrinted(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := corev1.Event{Type: "Warning", Reason: "BackOff", Message: "a\nb", Count: 3}
	e.FirstTimestamp.Time, e.LastTimestamp.Time = now.Add(-time.Hour), now.Add(-5*time.Second)
	e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "x", Name: "web", FieldPath: "spec.initContainers{i}"}
	if got := strings.Join(eventRow(&e, now), "|"); got != "5s (x3 over 60m)|Warning|BackOff|x|pod/web{i}|a; b" {
		t.Errorf("%s", got)
	}
	e.Count, e.InvolvedObject = 1, events.InputRef("/m/a.yaml")
	if got := strings.Join(eventRow(&e, now), "|"); got != "5s|Warning|BackOff|-|/m/a.yaml|a; b" {
		t.Errorf("%s", got)
	}
	e.LastTimestamp.Time = now.Add(time.Hour) // recorded by a clock that was ahead
	if got := eventRow(&e, now)[0]; got != "<unknown>" {
		t.Errorf("%s", got)
	}
}
