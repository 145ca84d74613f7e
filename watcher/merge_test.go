package watcher

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"monopod/internal/model"
	"monopod/manifests"
)

func podIn(source, file, name, image string) *manifests.Pod {
	return newPod(name, image, manifests.Origin{Source: source, File: file, Line: 1})
}

func setOf(source string, pods ...*manifests.Pod) Set {
	s := Set{Source: source, Pods: pods}
	for _, p := range pods {
		if i := slices.IndexFunc(s.Inputs, func(r model.Input) bool { return r.Input == p.Origin.File }); i >= 0 {
			s.Inputs[i].Pods = append(s.Inputs[i].Pods, p.Key().String())
			continue
		}
		s.Inputs = append(s.Inputs, model.Input{Source: source, Input: p.Origin.File, State: model.InputAccepted, Pods: []string{p.Key().String()}})
	}
	return s
}

func TestMerge(t *testing.T) {
	file := setOf("file", podIn("file", "/m/a.yaml", "a", "v1"), podIn("file", "/m/a.yaml", "b", "v1"))
	web := setOf("http", podIn("http", "http://h/", "b", "v2"), podIn("http", "http://h/", "c", "v2"))
	unread := Set{Source: "http", Unread: true, Inputs: []model.Input{{Source: "http", Input: "http://h/", State: model.InputUnreachable}}}
	tests := []struct {
		name     string
		order    []string
		sets     map[string]Set
		pods     string
		reported []string
		states   string
	}{
		{"nothing known wants nothing and reports nobody", []string{"file", "http"}, nil, "", nil, ""},
		{"one source alone", []string{"file", "http"}, map[string]Set{"file": file}, "a=v1@a.yaml b=v1@a.yaml", []string{"file"}, "/m/a.yaml:Accepted[default/a default/b]"},
		{"the earlier source wins", []string{"file", "http"}, map[string]Set{"file": file, "http": web}, "a=v1@a.yaml b=v1@a.yaml c=v2@h", []string{"file", "http"}, "/m/a.yaml:Accepted[default/a default/b] http://h/:Conflict[default/c]"},
		{"the order decides", []string{"http", "file"}, map[string]Set{"file": file, "http": web}, "b=v2@h c=v2@h a=v1@a.yaml", []string{"file", "http"}, "http://h/:Accepted[default/b default/c] /m/a.yaml:Conflict[default/a]"},
		{"an unread source is not reported", []string{"file", "http"}, map[string]Set{"file": file, "http": unread}, "a=v1@a.yaml b=v1@a.yaml", []string{"file"}, "/m/a.yaml:Accepted[default/a default/b] http://h/:Unreachable[]"},
		{"an empty source is reported", []string{"file"}, map[string]Set{"file": {Source: "file"}}, "", []string{"file"}, ""},
		{"sources outside the order come last", []string{"http"}, map[string]Set{"file": file, "http": web}, "b=v2@h c=v2@h a=v1@a.yaml", []string{"file", "http"}, "http://h/:Accepted[default/b default/c] /m/a.yaml:Conflict[default/a]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := Merge(tt.order, tt.sets)
			if got := content(d.Pods); got != tt.pods {
				t.Errorf("pods %q, want %q", got, tt.pods)
			}
			for _, source := range []string{"file", "http"} {
				if d.Reported[source] != slices.Contains(tt.reported, source) {
					t.Errorf("reported %v, want %v", d.Reported, tt.reported)
				}
			}
			var states []string
			for _, r := range d.Inputs {
				states = append(states, fmt.Sprintf("%s:%s%v", r.Input, r.State, r.Pods))
			}
			if got := strings.Join(states, " "); got != tt.states {
				t.Errorf("reports %q, want %q", got, tt.states)
			}
		})
	}
}

func TestMergeSaysWhoDefinesAPodAlready(t *testing.T) {
	d := Merge([]string{"file", "http"}, map[string]Set{
		"file": setOf("file", podIn("file", "/m/a.yaml", "b", "v1")),
		"http": setOf("http", podIn("http", "http://h/", "b", "v2")),
	})
	want := "http://h/:1: pod default/b is already defined in /m/a.yaml:1; rename or remove one of them"
	if got := d.Inputs[1].Errors; !slices.Equal(got, []string{want}) {
		t.Errorf("errors %q, want %q", got, want)
	}
}

// Another source may lose its definition at any time, so what it overrides must be known, and each change of it.
func TestMergeKeepsWhatIsOverridden(t *testing.T) {
	config := func(source, value string) *manifests.Object {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}, Data: map[string]string{"k": value}}
		return &manifests.Object{Kind: "ConfigMap", Object: o, Origin: manifests.Origin{Source: source, File: source}}
	}
	merged := func(pod, object string) model.Desired {
		file, applied := setOf("file", podIn("file", "/m/a.yaml", "b", "v1")), setOf("applied", podIn("applied", "/a/b.yaml", "b", pod))
		file.Objects, applied.Objects = []*manifests.Object{config("file", "1")}, []*manifests.Object{config("applied", object)}
		return Merge([]string{"file", "applied"}, map[string]Set{"file": file, "applied": applied})
	}
	d := merged("v1", "1")
	if got, objects := content(d.Overridden.Pods), d.Overridden.Objects; got != "b=v1@b.yaml" || len(objects) != 1 || objects[0].Origin.Source != "applied" {
		t.Errorf("overridden are %q and %+v", got, objects)
	}
	if !sameDesired(d, merged("v1", "1")) || sameDesired(d, merged("v2", "1")) || sameDesired(d, merged("v1", "2")) {
		t.Error("a change of what is overridden is not a change, or none is one")
	}
}

// used is the time that processors have worked for this process, which is the same on a busy machine.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Tens of thousands of pods that another source has too: a few lines say so.
func TestConflictsWithoutEndAreFewLines(t *testing.T) {
	const many = 20_000
	var pods, web []*manifests.Pod
	for i := range many {
		pods = append(pods, podIn("file", "/m/a.yaml", fmt.Sprint("p", i), "v1"))
		web = append(web, podIn("http", "http://h/", fmt.Sprint("p", i), "v2"))
	}
	web = append(web, podIn("http", "http://h/", "other", "v2"))
	began := used(t)
	d := Merge([]string{"file", "http"}, map[string]Set{"file": setOf("file", pods...), "http": setOf("http", web...)})
	if took := used(t) - began; took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	r := d.Inputs[1]
	if len(r.Errors) != MaxReasons+1 || r.Errors[MaxReasons] != fmt.Sprintf("and %d more", many-MaxReasons) || !slices.Equal(r.Pods, []string{"default/other"}) {
		t.Errorf("%d lines, the last is %q; pods %v", len(r.Errors), r.Errors[len(r.Errors)-1], r.Pods)
	}
	var log strings.Builder
	LogChanges(slog.New(slog.NewTextHandler(&log, nil)), nil, d.Inputs)
	if log.Len() > 10_000 || !strings.Contains(log.String(), "and 19990 more") {
		t.Errorf("%d bytes in the log: %.500s", log.Len(), log.String())
	}
}

func TestRemovable(t *testing.T) {
	some, all := map[string]bool{"file": true}, map[string]bool{"file": true, "http": true}
	broken := map[string][]string{"file": {"/m/broken.yaml"}}
	order := []string{"file", "http"}
	gone := manifests.Origin{Source: "fleet", File: "https://h/"}
	tests := []struct {
		name   string
		d      model.Desired
		origin manifests.Origin
		want   bool
	}{
		{"a file that is gone", model.Desired{Reported: some, Unknown: broken}, manifests.Origin{Source: "file", File: "/m/gone.yaml"}, true},
		{"a file that was never read", model.Desired{Reported: all, Unknown: broken}, manifests.Origin{Source: "file", File: "/m/broken.yaml"}, false},
		{"a source that has not reported", model.Desired{Reported: some}, manifests.Origin{Source: "http", File: "http://h/"}, false},
		{"a source of which not all is known", model.Desired{Reported: all, Partial: map[string]bool{"http": true}}, manifests.Origin{Source: "http", File: "http://h/"}, true},
		{"a source that is no more while another one is unread", model.Desired{Reported: some}, gone, false},
		{"a source that is no more while a file is unread", model.Desired{Reported: all, Unknown: broken}, gone, false},
		{"a source that is no more while not all of another one is known", model.Desired{Reported: all, Partial: map[string]bool{"http": true}}, gone, false},
		{"a source that is no more when all others are read", model.Desired{Reported: all}, gone, true},
		{"no origin", model.Desired{Reported: all, Unknown: broken}, manifests.Origin{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.Order = order
			if got := tt.d.Removable(tt.origin); got != tt.want {
				t.Errorf("removable is %v", got)
			}
		})
	}
	if (model.Desired{}).Removable(manifests.Origin{Source: "file", File: "/m/x.yaml"}) {
		t.Error("the zero Desired removes pods")
	}
}

func TestWhatRunsIsKeptAsLongAsAHigherSourceMayHaveIt(t *testing.T) {
	d := model.Desired{
		Order: []string{"file", "http", "applied"}, Reported: map[string]bool{"file": true, "applied": true},
		Unknown: map[string][]string{"file": {"/m/broken.yaml"}},
	}
	at := func(source, file string) manifests.Origin { return manifests.Origin{Source: source, File: file} }
	for name, tt := range map[string]struct {
		was, now manifests.Origin
		want     bool
	}{
		"a higher source that has not been read": {at("http", "http://h/"), at("applied", "/a/web"), true},
		"a broken file of a higher source":       {at("file", "/m/broken.yaml"), at("applied", "/a/web"), true},
		"a higher source that lacks it":          {at("file", "/m/gone.yaml"), at("applied", "/a/web"), false},
		"a lower source":                         {at("http", "http://h/"), at("file", "/m/web.yaml"), false},
		"the same source":                        {at("http", "http://h/"), at("http", "http://h/"), false},
		"another URL of the same source":         {at("http", "http://g/"), at("http", "http://h/"), false},
		"a broken file before another one":       {at("file", "/m/broken.yaml"), at("file", "/m/web.yaml"), true},
		"a broken file behind another one":       {at("file", "/m/broken.yaml"), at("file", "/m/a.yaml"), false},
		"a file that is gone before another one": {at("file", "/m/a.yaml"), at("file", "/m/web.yaml"), false},
		"a source that is no more":               {at("fleet", "http://f/"), at("applied", "/a/web"), false},
		"no origin":                              {manifests.Origin{}, at("applied", "/a/web"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.Keeps(tt.was, tt.now); got != tt.want {
				t.Errorf("kept: %v", got)
			}
		})
	}
}

// drawSets makes a few sources with overlapping pods and files.
func drawSets(t *rapid.T) ([]string, map[string]Set) {
	names := []string{"file", "http", "push", "oci"}
	sets := map[string]Set{}
	for _, source := range names {
		if !rapid.Bool().Draw(t, "has "+source) {
			continue
		}
		var pods []*manifests.Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "pods of "+source) {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			file := fmt.Sprintf("/%s/%d", source, rapid.IntRange(0, 2).Draw(t, "file"))
			pods = append(pods, podIn(source, file, name, fmt.Sprintf("%s-%d", source, i)))
		}
		set := setOf(source, pods...)
		set.Unread = len(pods) == 0 && rapid.Bool().Draw(t, "unread")
		if rapid.Bool().Draw(t, "without reports") {
			set.Inputs = nil
		}
		sets[source] = set
	}
	return rapid.Permutation(names).Draw(t, "order")[:rapid.IntRange(0, 4).Draw(t, "ordered")], sets
}

func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order, sets := drawSets(t)
		before := fmt.Sprintf("%+v", sets)
		d := Merge(order, sets)
		if after := fmt.Sprintf("%+v", sets); before != after {
			t.Fatal("the input was changed")
		}
		for range 3 {
			if again := Merge(order, sets); !reflect.DeepEqual(d, again) {
				t.Fatalf("not deterministic:\n%+v\n%+v", d, again)
			}
		}
		checkOwners(t, order, sets, d)
		checkIdempotent(t, d)
		checkConflicts(t, sets, d)
	})
}

// checkOwners: each pod that any set has is wanted exactly once, from the first set that has it, in its first form.
func checkOwners(t *rapid.T, order []string, sets map[string]Set, d model.Desired) {
	want := map[manifests.Key]*manifests.Pod{}
	for _, name := range slices.Concat(order, []string{"file", "http", "oci", "push"}) { // the rest goes by name
		for _, p := range sets[name].Pods {
			if want[p.Key()] == nil {
				want[p.Key()] = p
			}
		}
	}
	all := 0
	for _, set := range sets {
		all += len(set.Pods)
	}
	if lost := len(d.Overridden.Pods); len(d.Pods)+lost != all {
		t.Fatalf("%d pods count and %d are overridden, of %d", len(d.Pods), lost, all)
	}
	if len(want) != len(d.Pods) {
		t.Fatalf("%d pods wanted, %d expected", len(d.Pods), len(want))
	}
	for _, p := range d.Pods {
		if want[p.Key()] != p {
			t.Fatalf("%s comes from %v, not from %v", p.Key(), p.Origin, want[p.Key()].Origin)
		}
	}
}

// checkIdempotent: merging the outcome changes nothing.
func checkIdempotent(t *rapid.T, d model.Desired) {
	again := Merge(nil, map[string]Set{"all": {Source: "all", Pods: d.Pods, Inputs: d.Inputs}})
	if !same(again.Pods, d.Pods) || !slices.EqualFunc(again.Inputs, d.Inputs, SameReport) {
		t.Fatalf("not idempotent:\n%+v\n%+v", d, again)
	}
}

// checkConflicts checks that each pod that lost is reported once, at its own input, and at no other.
func checkConflicts(t *rapid.T, sets map[string]Set, d model.Desired) {
	losers := map[string]int{}
	for _, set := range sets {
		for _, p := range set.Pods {
			if !slices.Contains(d.Pods, p) {
				losers[p.Origin.File]++
			}
		}
	}
	told := 0
	for _, r := range d.Inputs {
		if len(r.Errors) != losers[r.Input] || (r.State == model.InputConflict) != (losers[r.Input] > 0) {
			t.Fatalf("%d pods of %s lost, the report is %+v", losers[r.Input], r.Input, r)
		}
		told += len(r.Errors)
	}
	sum := 0
	for _, n := range losers {
		sum += n
	}
	if told != sum {
		t.Fatalf("%d pods lost, %d told", sum, told)
	}
}
