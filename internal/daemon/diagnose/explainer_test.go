package diagnose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/node/events"
	"monopod/node/why"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/podstatus"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
)

// TestOfOtherPodsNothingIsLookedUp: there may be thousands of them.
func TestOfOtherPodsNothingIsLookedUp(t *testing.T) {
	var pods []*manifests.Pod
	for _, name := range []string{"web", "other"} {
		loaded, err := decode.Pods("/m/"+name+".yaml", []byte(daemontest.PodYAML(name, "x")), decode.Options{Source: config.SourceFile})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, loaded...)
	}
	b := state.New(&state.Changes{}, rollout.New(rollout.Config{Log: slog.New(slog.DiscardHandler), Clock: func() boottime.Moment { return boottime.Moment{Boot: "b", Since: time.Hour} }}))
	ctx, cancel := context.WithCancel(t.Context())
	ended, handed := make(chan error, 1), make(chan struct{})
	go func() { ended <- b.Rollouts.Run(ctx) }()
	b.Rollouts.Update(model.Desired{Pods: pods}, func(model.Desired) { close(handed) })
	<-handed
	b.Blind(errors.New("no runtime"))
	b.Publish(model.Desired{Pods: pods})
	e := &Explainer{State: b, Now: time.Now, Events: events.New(events.Config{Dir: t.TempDir()})}
	for name, want := range map[string]map[string]int{"web": {"web": 1, "other": 0}, "": {"web": 1, "other": 1}} {
		f, err := e.facts(ctx, "default", name)
		got := map[string]int{}
		for _, p := range f.Pods {
			if got[p.Object.Name] = p.Revision; p.Where == "" {
				t.Errorf("%s is nowhere", p.Object.Name)
			}
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("about %q: revisions %v, %v", name, got, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheFactsAreThoseOfTheNamespaceAndOfTheWholeMachine(t *testing.T) {
	here, there := runtimetest.NewPod("web"), runtimetest.NewPod("db")
	there.Object.Namespace = "other"
	s := state.New(&state.Changes{}, rollout.New(rollout.Config{}))
	e := &Explainer{
		State: s, Now: func() time.Time { return time.Unix(1e9, 0) }, Events: events.New(events.Config{Dir: t.TempDir()}), Unmirrored: &state.Unmirrored{},
		Places: why.Places{Manifests: "/m"}, Instance: why.Instance{Config: "c"}, Unfit: func() []why.Unfit { return []why.Unfit{{Name: "big"}} },
	}
	if f, err := e.facts(t.Context(), "", ""); !errors.Is(err, node.ErrStarting) || len(f.Pods) > 0 {
		t.Errorf("at the start: %+v, %v", f, err)
	}
	object := func(o metav1.Object, kind string) *manifests.Object {
		o.SetNamespace("default")
		o.SetName("o")
		return &manifests.Object{Object: o, Kind: kind, Origin: manifests.Origin{File: "/m/o.yaml", Line: 2}}
	}
	own := model.Input{Source: config.SourceApplied, State: model.InputAccepted}
	bad := model.Input{Source: config.SourceFile, Input: "/m/bad.yaml", State: model.InputRefused}
	s.Publish(model.Desired{
		Pods: []*manifests.Pod{here, there}, Inputs: []model.Input{own, bad}, Workloads: []*manifests.Object{object(&appsv1.Deployment{}, "Deployment")},
		Objects: []*manifests.Object{
			object(&corev1.ConfigMap{Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}, "ConfigMap"),
			object(&corev1.Secret{Data: map[string][]byte{"key": nil}}, "Secret"), object(&corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}, "Service"),
		},
	})
	s.Blind(errors.New("no containerd"))
	defer s.Removals.Attach(removing{})()
	for name, want := range map[[2]string]string{{"", ""}: "web db old", {"default", ""}: "web old", {"other", ""}: "db", {"default", "web"}: "web db old"} {
		f, err := e.facts(t.Context(), name[0], name[1])
		var got []string
		for _, p := range f.Pods {
			got = append(got, p.Object.Name)
		}
		if err != nil || strings.Join(got, " ") != want || f.Runtime != "no containerd" {
			t.Errorf("about %v: %v, %v, %q; want %s", name, got, err, f.Runtime, want)
		}
		if len(f.Inputs) != 1 || f.Inputs[0].Input != bad.Input || len(f.Unfit) != 1 || !f.Now.Equal(time.Unix(1e9, 0)) || f.Places.Manifests != "/m" || f.Instance.Config != "c" {
			t.Errorf("about %v: %+v", name, f)
		}
		wantObjects := []why.Object{
			{Kind: "ConfigMap", Keys: []string{"a", "b"}}, {Kind: "Secret", Keys: []string{"key"}}, {Kind: "Service", Selector: map[string]string{"app": "web"}}, {Kind: "Deployment"},
		}
		for i := range wantObjects {
			wantObjects[i].Namespace, wantObjects[i].Name, wantObjects[i].Where = "default", "o", "/m/o.yaml:2"
		}
		if !reflect.DeepEqual(f.Objects, wantObjects) {
			t.Errorf("about %v: objects %+v", name, f.Objects)
		}
	}
	if a, err := e.Why(t.Context(), "default", "web"); err != nil || !strings.Contains(fmt.Sprintf("%+v", a), "no containerd") {
		t.Errorf("the answer: %+v, %v", a, err)
	}
}

// removing is a runtime that still removes a pod.
type removing struct{}

func (removing) Removals() []ctrd.Removal {
	return []ctrd.Removal{{Pod: runtimetest.NewPod("old"), Since: time.Unix(1e9, 0)}}
}

// TestOfThePodThatIsAskedAboutEventsTellMore: whether its output is kept, its network works, and the API server shows it.
func TestOfThePodThatIsAskedAboutEventsTellMore(t *testing.T) {
	web := runtimetest.NewPod("web")
	s := state.New(&state.Changes{}, rollout.New(rollout.Config{}))
	s.Publish(model.Desired{Pods: []*manifests.Pod{web}})
	s.Blind(errors.New("no containerd"))
	e := &Explainer{State: s, Now: time.Now, Events: events.New(events.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}), Unmirrored: &state.Unmirrored{}}
	ref := corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}
	e.Events.Event(ref, corev1.EventTypeWarning, ctrd.EventLogsDropped, "c: the disk is full")
	e.Events.Event(ref, corev1.EventTypeWarning, ctrd.EventNetworkDamaged, "no route")
	e.Unmirrored.Set(web.Key(), errors.New("forbidden"))
	for name, want := range map[string][3]string{"web": {"c: the disk is full", "no route", "forbidden"}, "another": {}} {
		f, err := e.facts(t.Context(), "default", name)
		if err != nil || len(f.Pods) != 1 {
			t.Fatalf("about %s: %+v, %v", name, f.Pods, err)
		}
		if p := f.Pods[0]; p.LogsDropped != want[0] || p.NetworkDamaged != want[1] || p.NotMirrored != want[2] {
			t.Errorf("about %s: %+v", name, p)
		}
	}
}

func TestWhatAPodReportsBecomesFacts(t *testing.T) {
	at := time.Unix(1e9, 0)
	s := podstatus.Status{
		Pod: runtimetest.NewPod("web").Object, Origin: manifests.Origin{File: "/m/web.yaml", Line: 3}, NextTry: at, Why: "it crashed",
		Trouble: model.Trouble{Kind: model.TroubleExited, Container: "c"}, EndedBy: map[string]runner.EndedBy{"c": runner.EndedByAgent},
		More: []model.Trouble{{Kind: model.TroubleStep, Container: "e"}}, StoppedFor: map[string]runner.StopCause{"d": runner.StopLivenessProbe},
	}
	e := &Explainer{}
	p := e.reported(&s)
	if p.Where != "/m/web.yaml:3" || !p.NextTry.Equal(at) || p.Trouble.Text != "it crashed" || p.Trouble.Kind != model.TroubleExited || p.EndedBy["c"] != string(runner.EndedByAgent) || len(p.More) != 1 || p.More[0].Container != "e" || p.StoppedFor["d"] != string(runner.StopLivenessProbe) {
		t.Errorf("%+v", p)
	}
	if p := e.reported(&podstatus.Status{Pod: s.Pod}); p.EndedBy != nil || p.Trouble.Kind != model.NoTrouble {
		t.Errorf("of nothing: %+v", p)
	}
	e.Copies = map[string]string{"/m/web.yaml": "/home/me/pods.yaml:12"}
	if p := e.reported(&s); p.Where != "/home/me/pods.yaml:12" {
		t.Errorf("a copy is named instead of the author's file: %s", p.Where)
	}
	s.Origin.File = "/m/other.yaml"
	if p := e.reported(&s); p.Where != "/m/other.yaml:3" {
		t.Errorf("no copy: %s", p.Where)
	}
}
