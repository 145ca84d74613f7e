package kubeview

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/cause"
	"monopod/internal/daemon/kubeview/computed"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/budget"
	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/monopodv1"
	"monopod/node/localapi"
	"monopod/node/stats"
)

type fakeStats struct{ err error }

func (f fakeStats) All(_ context.Context, o stats.Options) (stats.Machine, []stats.Pod, error) {
	cores := uint64(250e6)
	if !o.Rates {
		return stats.Machine{}, nil, errors.New("without rates")
	}
	u := stats.Usage{Time: time.Unix(7, 0), CPU: stats.CPU{NanoCores: &cores}, Memory: stats.Memory{WorkingSet: 5 << 20}}
	p := stats.Pod{Usage: u, Containers: []stats.Container{{Usage: u}}}
	p.Namespace, p.Name, p.Containers[0].Name = "default", "web", "c"
	ended := stats.Pod{Usage: u}
	ended.Namespace, ended.Name = "default", "ended"
	return stats.Machine{Usage: u}, []stats.Pod{p, ended}, f.err
}

type fakeImages struct{}

func (fakeImages) Images(context.Context) (*localapi.ImageList, error) {
	return &localapi.ImageList{Items: []localapi.Image{{
		Digest: "sha256:ab", Names: []string{"i"}, Size: 9, Own: 4, UsedBy: []string{"default/web"}, NeededBy: []localapi.ImageNeed{{Kind: "Manifest", By: "default/web"}, {Kind: "Undecided"}},
	}}}, nil
}

type fakeRevisions struct{}

func (fakeRevisions) History(key manifests.Key) *localapi.History {
	if key.Name != "web" {
		return nil
	}
	return &localapi.History{Namespace: key.Namespace, Name: key.Name, Wanted: 2, Active: 1, Revisions: []localapi.Revision{{Number: 1, Outcome: "Ready"}, {Number: 2, Outcome: "Failed", Reason: "x"}}}
}

func retryAt(at time.Time) *model.Retry {
	r := &model.Retry{}
	r.Set(at)
	return r
}

func TestComputedKinds(t *testing.T) {
	bubble(t, func(c *Config) {
		c.Stats, c.Images, c.Revisions = fakeStats{}, fakeImages{}, fakeRevisions{}
		c.Agent = func() localapi.Agent {
			return localapi.Agent{PID: 7, Version: "1", Agent: budget.Cost{ResidentBytes: 3}, Shims: budget.Cost{ResidentBytes: 4}, Warnings: []string{"w"}, Conditions: []corev1.NodeCondition{{Type: "MemoryPressure", Status: "False", Reason: "Enough"}}}
		}
	}, func(t *testing.T, w *world) {
		d := desired(t, files, podYAML("web", "")+podYAML("other", ""))
		d.Inputs = []model.Input{
			{Source: "file", Input: "/m/app.yaml", State: model.InputAccepted, Pods: []string{"default/web"}, Errors: []string{"note"}},
			{
				Source: "file", Input: "/m/bad.yaml", State: model.InputRefused, Errors: []string{"a typed one", "another"}, Problems: []model.Problem{{
					Text: "a typed one", Error: manifests.Error{File: "/m/bad.yaml", Line: 3, Column: 4, Kind: "Pod", Pod: "default/bad", Field: "spec.x", Msg: "no", Hint: "do", Type: field.ErrorTypeInvalid},
				}},
			},
			{Source: "url", Input: "https://a", State: model.InputUnreachable, Errors: []string{"late"}, Cause: cause.Cause{Kind: cause.InputUnreachable, Fault: cause.TimedOut}, Retry: retryAt(time.Unix(9, 5))},
			{Source: "file", Input: "/m/.swp", State: model.InputIgnored, Errors: []string{"no manifest"}},
		}
		w.publish(d)
		w.settle()
		node := only[*metricsv1beta1.NodeMetrics](w, "metrics.k8s.io/v1beta1/NodeMetrics", 1)[0]
		if node.Name != "node" || node.Usage.Cpu().MilliValue() != 250 || node.Usage.Memory().Value() != 5<<20 || node.Timestamp.Unix() != 7 {
			t.Errorf("%+v", node)
		}
		pod := only[*metricsv1beta1.PodMetrics](w, "metrics.k8s.io/v1beta1/PodMetrics", 1)[0]
		if pod.Name != "web" || pod.Labels["app"] != "web" || pod.Containers[0].Name != "c" || pod.Containers[0].Usage.Cpu().MilliValue() != 250 || pod.Kind != "PodMetrics" {
			t.Errorf("%+v", pod)
		}
		again := metav1.NewTime(time.Unix(9, 0))
		want := map[string][]monopodv1.SourceCause{
			"/m/app.yaml": nil, "/m/.swp": nil,
			"/m/bad.yaml": {
				{Reason: "FieldValueInvalid", Kind: "Pod", Namespace: "default", Name: "bad", Field: "spec.x", File: "/m/bad.yaml", Line: 3, Column: 4, Message: "no", Hint: "do"},
				{Reason: "Refused", File: "/m/bad.yaml", Message: "another"},
			},
			"https://a": {{Reason: "TimedOut", File: "https://a", Message: "late", RetryAt: &again}},
		}
		for _, s := range only[*monopodv1.Source](w, "monopod.dev/v1alpha1/Source", 4) {
			causes, notes := want[s.Status.Location], s.Status.Verdict == "Accepted" || s.Status.Verdict == "Ignored"
			if diff := cmp.Diff(s.Status.Causes, causes); diff != "" || len(s.Status.Notes) > 0 != notes || s.UID == "" {
				t.Errorf("%+v\n%s", s, diff)
			}
			if c := s.Status.Conditions[0]; c.Type != "Accepted" || (c.Status == "True") != (s.Status.Verdict == "Accepted") || c.Reason != s.Status.Verdict {
				t.Errorf("%+v", c)
			}
			if !reflect.DeepEqual(s, s.DeepCopyObject()) {
				t.Error("it is another one after a copy")
			}
		}
		revisions := only[*monopodv1.Revision](w, "monopod.dev/v1alpha1/Revision", 2)
		if r := revisions[1]; r.Name != "web-2" || !r.Status.Wanted || r.Status.Active || r.Status.Reason != "x" || !revisions[0].Status.Active {
			t.Errorf("%+v", r)
		}
		if i := only[*monopodv1.Image](w, "monopod.dev/v1alpha1/Image", 1)[0]; i.Name != "sha256-ab" || i.OwnBytes != 4 || fmt.Sprint(i.NeededBy) != "[{Manifest default/web} {Undecided }]" {
			t.Errorf("%+v", i)
		}
		if a := only[*monopodv1.Agent](w, "monopod.dev/v1alpha1/Agent", 1)[0]; a.Name != "node" || a.PID != 7 || a.ResidentBytes != 3 || a.ShimBytes != 4 || a.Conditions[0].Reason != "Enough" {
			t.Errorf("%+v", a)
		}
		if _, ok, err := w.Computed(t.Context(), kindNamed(t, "Pod")); ok || err != nil {
			t.Errorf("pods are computed: %v", err)
		}
	})
}

// only returns the objects of a computed kind, of which there must be as many.
func only[T any](w *world, kind string, count int) []T {
	w.t.Helper()
	objects, ok, err := w.Computed(w.t.Context(), kindNamed(w.t, kind))
	if !ok || err != nil || len(objects) != count {
		w.t.Fatalf("%s: %d objects, %v", kind, len(objects), err)
	}
	var all []T
	for _, o := range objects {
		all = append(all, o.(T))
	}
	return all
}

func TestComputedKindsWithoutTheirSources(t *testing.T) {
	w := newWorld(t, nil)
	for _, kind := range []string{"metrics.k8s.io/v1beta1/NodeMetrics", "metrics.k8s.io/v1beta1/PodMetrics", "monopod.dev/v1alpha1/Image", "monopod.dev/v1alpha1/Revision", "monopod.dev/v1alpha1/Agent"} {
		if objects, ok, err := w.Computed(t.Context(), kindNamed(t, kind)); !ok || err != nil || len(objects) > 0 {
			t.Errorf("%s: %v %v", kind, objects, err)
		}
	}
	w = newWorld(t, func(c *Config) { c.Stats = fakeStats{errors.New("no cgroups")} })
	if _, ok, err := w.Computed(t.Context(), kindNamed(t, "metrics.k8s.io/v1beta1/PodMetrics")); !ok || err == nil {
		t.Error("the error is lost")
	}
}

func TestNamesOfSources(t *testing.T) {
	seen := map[string]string{}
	for _, location := range []string{
		"", "/", "/etc/monopod/manifests/web.yaml", "/etc/monopod/manifests/web-yaml", "https://example.com/a?b=c", "-", "Größe.yaml", "/" + strings.Repeat("x", 300), strings.Repeat("/a", 100),
	} {
		name := computed.NameOf("file", location)
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
			t.Errorf("%q: %s: %v", location, name, errs)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%q and %q are both %s", location, other, name)
		}
		seen[name] = location
	}
	if computed.NameOf("file", "/a") == computed.NameOf("url", "/a") {
		t.Error("two sources have one name")
	}
}
