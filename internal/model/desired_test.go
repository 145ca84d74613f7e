package model_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
)

func origin(source, file string) manifests.Origin {
	return manifests.Origin{Source: source, File: file}
}

func TestPodsAreRemovedOnlyAfterTheirSourceWasRead(t *testing.T) {
	order := []string{"file", "url"}
	for _, tt := range []struct {
		name string
		d    model.Desired
		of   manifests.Origin
		want bool
	}{
		{"its source has not been read", model.Desired{Order: order, Reported: map[string]bool{"url": true}}, origin("file", "/a"), false},
		{"its source has been read", model.Desired{Order: order, Reported: map[string]bool{"file": true}}, origin("file", "/a"), true},
		{"its file cannot be read", model.Desired{Order: order, Reported: map[string]bool{"file": true}, Unknown: map[string][]string{"file": {"/a"}}}, origin("file", "/a"), false},
		{"another file cannot be read", model.Desired{Order: order, Reported: map[string]bool{"file": true}, Unknown: map[string][]string{"file": {"/b"}}}, origin("file", "/a"), true},
		{"objects are missing", model.Desired{Order: order, Reported: map[string]bool{"file": true}, Incomplete: true}, origin("file", "/a"), false},
		{"a source of a former configuration", model.Desired{Order: order, Reported: map[string]bool{"file": true}}, origin("gone", "/a"), false},
		{"the same, all others have been read", model.Desired{Order: order, Reported: map[string]bool{"file": true, "url": true}}, origin("gone", "/a"), true},
		{"the same, one of them in part", model.Desired{Order: order, Reported: map[string]bool{"file": true, "url": true}, Partial: map[string]bool{"url": true}}, origin("gone", "/a"), false},
		{"an unknown origin", model.Desired{Order: order, Reported: map[string]bool{"file": true, "url": true}}, manifests.Origin{}, false},
		{"no sources are known", model.Desired{Reported: map[string]bool{"once": true}}, origin("once", "/a"), true},
	} {
		if got := tt.d.Removable(tt.of); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestPodStaysAsItIsUntilItsOwnInputIsRead(t *testing.T) {
	read := map[string]bool{"file": true, "url": true}
	for _, tt := range []struct {
		name     string
		d        model.Desired
		was, now manifests.Origin
		want     bool
	}{
		{"the earlier file cannot be read", model.Desired{Reported: read, Unknown: map[string][]string{"file": {"/a"}}}, origin("file", "/a"), origin("file", "/b"), true},
		{"the earlier file has been read", model.Desired{Reported: read}, origin("file", "/a"), origin("file", "/b"), false},
		{"the later file cannot be read", model.Desired{Reported: read, Unknown: map[string][]string{"file": {"/b"}}}, origin("file", "/b"), origin("file", "/a"), false},
		{"the same file", model.Desired{Reported: read, Unknown: map[string][]string{"file": {"/a"}}}, origin("file", "/a"), origin("file", "/a"), false},
		{"the preferred source has not been read", model.Desired{Reported: map[string]bool{"url": true}}, origin("file", "/a"), origin("url", "u"), true},
		{"the preferred source has been read", model.Desired{Reported: read}, origin("file", "/a"), origin("url", "u"), false},
		{"the other source has not been read", model.Desired{Reported: map[string]bool{"file": true}}, origin("url", "u"), origin("file", "/a"), false},
		{"a source of a former configuration", model.Desired{Reported: map[string]bool{"url": true}}, origin("gone", "/a"), origin("url", "u"), false},
	} {
		tt.d.Order = []string{"file", "url"}
		if got := tt.d.Keeps(tt.was, tt.now); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestCompleteAndAnsweredSources(t *testing.T) {
	order := []string{"file", "url"}
	read := map[string]bool{"file": true, "url": true}
	for _, tt := range []struct {
		name               string
		d                  model.Desired
		complete, answered bool
	}{
		{"no sources", model.Desired{}, true, true},
		{"nothing read", model.Desired{Order: order}, false, false},
		{"one read", model.Desired{Order: order, Reported: map[string]bool{"file": true}}, false, false},
		{"all read", model.Desired{Order: order, Reported: read}, true, true},
		{"one in part", model.Desired{Order: order, Reported: read, Partial: map[string]bool{"url": true}}, false, true},
		{"one file unknown", model.Desired{Order: order, Reported: read, Unknown: map[string][]string{"file": {"/a"}}}, false, true},
		{"one cannot be reached", model.Desired{Order: order, Reported: map[string]bool{"file": true}, Inputs: []model.Input{{Source: "url", State: model.InputUnreachable}}}, false, true},
		{"objects are missing", model.Desired{Order: order, Reported: read, Incomplete: true}, true, true},
	} {
		if complete, answered := tt.d.Complete(), tt.d.Answered(); complete != tt.complete || answered != tt.answered {
			t.Errorf("%s: complete %t, answered %t", tt.name, complete, answered)
		}
	}
}

// anyDesired draws what has been read of two sources with two files each.
func anyDesired(rt *rapid.T) model.Desired {
	d := model.Desired{Order: []string{"file", "url"}, Reported: map[string]bool{}, Partial: map[string]bool{}, Unknown: map[string][]string{}}
	for _, source := range d.Order {
		d.Reported[source], d.Partial[source] = rapid.Bool().Draw(rt, source), rapid.Bool().Draw(rt, source+" in part")
		for _, file := range []string{"/a", "/b"} {
			if rapid.Bool().Draw(rt, source+" lacks "+file) {
				d.Unknown[source] = append(d.Unknown[source], file)
			}
		}
	}
	d.Incomplete = rapid.Bool().Draw(rt, "incomplete")
	return d
}

func TestNoPodIsBothKeptAndRemoved(t *testing.T) {
	origins := rapid.Custom(func(rt *rapid.T) manifests.Origin {
		return origin(rapid.SampledFrom([]string{"file", "url"}).Draw(rt, "source"), rapid.SampledFrom([]string{"/a", "/b"}).Draw(rt, "file"))
	})
	rapid.Check(t, func(rt *rapid.T) {
		d, was, now := anyDesired(rt), origins.Draw(rt, "was"), origins.Draw(rt, "now")
		if d.Keeps(was, now) && d.Removable(was) {
			rt.Fatalf("%+v: %v is kept and removed", d, was)
		}
		if d.Keeps(was, now) && d.Keeps(now, was) {
			rt.Fatalf("%+v: %v and %v are both preferred", d, was, now)
		}
		if d.Complete() && !d.Incomplete && !d.Removable(was) {
			rt.Fatalf("%+v: all is known, and %v cannot be removed", d, was)
		}
	})
}

func TestSameReadComparesWhatWasRead(t *testing.T) {
	base := func() model.Desired {
		return model.Desired{Reported: map[string]bool{"file": true}, Partial: map[string]bool{"url": true}, Unknown: map[string][]string{"file": {"/a"}}}
	}
	for name, tt := range map[string]struct {
		change func(*model.Desired)
		same   bool
	}{
		"nothing":             {func(*model.Desired) {}, true},
		"other pods":          {func(d *model.Desired) { d.Pods = []*manifests.Pod{{}} }, true},
		"other inputs":        {func(d *model.Desired) { d.Inputs = []model.Input{{}} }, true},
		"a source more":       {func(d *model.Desired) { d.Reported["url"] = true }, false},
		"a source completely": {func(d *model.Desired) { delete(d.Partial, "url") }, false},
		"another file":        {func(d *model.Desired) { d.Unknown["file"] = []string{"/b"} }, false},
		"all files":           {func(d *model.Desired) { d.Unknown = nil }, false},
		"not all objects":     {func(d *model.Desired) { d.Incomplete = true }, false},
	} {
		d := base()
		tt.change(&d)
		if a, b := base().SameRead(d), d.SameRead(base()); a != tt.same || b != tt.same {
			t.Errorf("%s changed: %t, %t", name, a, b)
		}
	}
}

// The local API and the command line exchange these forms, possibly of different versions.
func TestFormsOfTheLocalAPI(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for want, v := range map[string]any{
		`{"source":"file","input":"/m/a.yaml","state":"Refused","errors":["line 3: x"],"pods":["default/web"],"objects":["ConfigMap default/c"],"since":"2026-01-02T03:00:00Z"}`: model.Input{
			Source: "file", Input: "/m/a.yaml", State: model.InputRefused, Errors: []string{"line 3: x"}, Pods: []string{"default/web"},
			Objects: []string{"ConfigMap default/c"}, Since: at, Cause: cause.Cause{Kind: cause.InputRefused},
		},
		`{"source":"url","input":"u","state":"Unreachable","since":"2026-01-02T03:00:00Z","fromDisk":"2026-01-02T03:00:00Z"}`: model.Input{
			Source: "url", Input: "u", State: model.InputUnreachable, Since: at, FromDisk: at,
		},
		`{"image":"nginx","since":"2026-01-02T03:00:00Z","done":3,"total":9}`: model.Pull{Image: "nginx", Since: at, Done: 3, Total: 9},
		`{"container":"a","kind":"Liveness","result":"failure","failures":2,"threshold":3,"output":"no","fault":"Refused","last":"2026-01-02T03:00:00Z"}`: model.Probe{
			Container: "a", Kind: "Liveness", Result: "failure", Failures: 2, Threshold: 3, Output: "no", Fault: cause.Refused, Last: at,
			Counts: model.ProbeCounts{Failed: 2},
		},
	} {
		if b, err := json.Marshal(v); err != nil || string(b) != want {
			t.Errorf("%s %v, want %s", b, err, want)
		}
	}
	if bounds := model.ProbeBounds(); !slices.IsSorted(bounds[:]) || len(bounds) != len(model.ProbeCounts{}.Buckets) {
		t.Errorf("bounds %v", bounds)
	}
}
