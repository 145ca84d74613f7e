package state

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

// wantError fails the test unless err is exactly the wanted one.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// wantText fails the test unless err has the text; empty: unless it is nil.
func wantText(t *testing.T, what string, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("%s: error %v, want %q", what, err, text)
	}
}

func TestBeforeAnythingIsKnownTheDaemonIsStarting(t *testing.T) {
	for name, s := range map[string]*Store{"new": newStore(), "published": newStore(), "runtime opened": newStore()} {
		switch name {
		case "published":
			s.Publish(fromFiles(serving("web")...))
		case "runtime opened":
			s.pool = pool.New(runtimetest.NewFake(), pool.Config{})
		}
		_, err := s.Pods()
		wantError(t, name+": Pods", err, node.ErrStarting)
		_, err = s.Statuses()
		wantError(t, name+": Statuses", err, node.ErrStarting)
		_, err = s.Known()
		wantError(t, name+": Known", err, node.ErrStarting)
		wantError(t, name+": Trouble", s.Trouble(), node.ErrStarting)
		if _, _, complete := s.Current(); complete || s.TroubleText() != node.ErrStarting.Error() {
			t.Errorf("%s: complete %t, %q", name, complete, s.TroubleText())
		}
		if _, ok := s.Endpoints(); ok || s.Empty() {
			t.Errorf("%s: names are answered, or nothing is there", name)
		}
	}
}

func TestWithoutARuntimeTheDesiredPodsAreUnknown(t *testing.T) {
	s, lost := newStore(), errors.New("no\ncontainerd")
	s.Publish(fromFiles(serving("web")...))
	s.Blind(lost)
	views, err := s.Pods()
	wantText(t, "Pods", err, "the runtime does not respond: no; containerd")
	if len(views) != 1 || views[0].Pod.Status.Phase != corev1.PodUnknown || views[0].Why != err.Error() || views[0].Origin.File != "/m/web.yaml" {
		t.Errorf("clients see %+v", views)
	}
	_, err = s.Statuses()
	wantError(t, "Statuses", err, lost)
	wantError(t, "Trouble", s.Trouble(), lost)
	wantError(t, "CheckRuntime", s.CheckRuntime(t.Context()), lost)
	wantError(t, "CheckObserved", s.CheckObserved(t.Context()), lost)
	wantText(t, "CheckPodLoop", s.CheckPodLoop(t.Context()), "") // a restart would not help
	k, err := s.Known()
	wantText(t, "Known", err, "")
	if !errors.Is(k.Trouble, lost) || k.Pool != nil || len(k.Statuses) != 1 || k.Statuses[0].Pod.Status.Phase != corev1.PodUnknown {
		t.Errorf("known: %+v", k)
	}
}

func TestARuntimeThatIsOpenedEndsTheTroubleAndItsEndBringsItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rt := newStore(), runtimetest.NewFake()
		s.Blind(errors.New("no containerd"))
		s.Publish(fromFiles(serving("web")...))
		var observed []corev1.PodPhase
		p, stop := open(t, s, rt, func(c pool.Change) { observed = append(observed, c.Status.Pod.Status.Phase) })
		views, err := s.Pods()
		if err != nil || len(views) != 1 || views[0].Pod.Status.Phase != corev1.PodRunning || views[0].Manifest == "" || views[0].Revision.Number != 1 {
			t.Errorf("clients see %+v, %v", views, err)
		}
		wantText(t, "Trouble", s.Trouble(), "")
		wantText(t, "CheckRuntime", s.CheckRuntime(t.Context()), "")
		wantText(t, "CheckObserved", s.CheckObserved(t.Context()), "")
		wantText(t, "CheckPodLoop", s.CheckPodLoop(t.Context()), "")
		if d, statuses, complete := s.Current(); len(d.Pods) != 1 || len(statuses) != 1 || !complete {
			t.Errorf("%d desired and %d known pods, complete %t", len(d.Pods), len(statuses), complete)
		}
		if k, err := s.Known(); err != nil || k.Trouble != nil || k.Pool != p || len(k.Statuses) != 1 {
			t.Errorf("known: %+v, %v", k, err)
		}
		if all, err := s.Statuses(); err != nil || len(all) != 1 || len(observed) == 0 || observed[len(observed)-1] != corev1.PodRunning {
			t.Errorf("%d statuses, %v; the observer got %v", len(all), err, observed)
		}
		rt.Blind(runtimetest.ErrBlind)
		time.Sleep(time.Minute) // the last answer does not count any more
		wantText(t, "CheckRuntime", s.CheckRuntime(t.Context()), runtimetest.ErrBlind.Error())
		stop()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantText(t, "CheckPodLoop", s.CheckPodLoop(soon), "does not respond")
		s.Detach()
		wantText(t, "CheckPodLoop", s.CheckPodLoop(t.Context()), "")
		wantError(t, "Trouble", s.Trouble(), node.ErrStarting)
		wantText(t, "CheckRuntime", s.CheckRuntime(t.Context()), "connecting to the runtime")
	})
}

func TestADaemonIsEmptyOnceTheLastPodIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rt := newStore(), runtimetest.NewFake()
		web := runtimetest.NewPod("web", runtimetest.NewContainer("c", runtimetest.ScriptStubborn))
		s.Publish(fromFiles(web))
		_, stop := open(t, s, rt)
		if s.Empty() {
			t.Error("empty while a pod runs")
		}
		stop()
		s.Detach()
		s.Publish(fromFiles())
		if s.Empty() {
			t.Error("empty without a runtime")
		}
		open(t, s, rt.Restart())
		if s.Empty() {
			t.Error("empty while a pod is being stopped")
		}
		if views, err := s.Pods(); err != nil || len(views) != 1 || views[0].Pod.Name != "web" {
			t.Errorf("clients see %+v, %v", views, err)
		}
		time.Sleep(time.Minute) // it gets its grace period
		if views, err := s.Pods(); !s.Empty() {
			t.Errorf("not empty: %+v, %v", views, err)
		}
		s.Publish(fromFiles(web))
		if s.Empty() {
			t.Error("empty though a pod is desired")
		}
	})
}

func TestNamesAreAnsweredForThePodsAndServicesOnceAllPodsWereLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rt := newStore(), runtimetest.NewFake()
		d := fromFiles(serving("web", "db")...)
		for _, o := range []metav1.Object{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}}, &corev1.ConfigMap{}} {
			d.Objects = append(d.Objects, &manifests.Object{Object: o})
		}
		s.Publish(d)
		rt.Blind(runtimetest.ErrBlind)
		s.pool = pool.New(rt, pool.Config{})
		if _, ok := s.Endpoints(); ok {
			t.Error("names are answered before the pods were looked at")
		}
		rt.Blind(nil)
		open(t, s, rt)
		e, ok := s.Endpoints()
		pods, services := e.Pods, e.Services
		if !ok || len(pods) != 2 || len(services) != 1 || services[0].Name != "front" {
			t.Errorf("%d pods, services %v, %t", len(pods), services, ok)
		}
	})
}

func TestTheFirstSourceThatIsNotReadIsNamed(t *testing.T) {
	s := newStore()
	wantText(t, "nothing published", s.CheckSources(t.Context()), "no source has been read yet")
	d := model.Desired{Order: []string{"remote", config.SourceFile, config.SourceApplied}, Reported: map[string]bool{config.SourceFile: true}}
	for _, step := range []struct{ read, missing string }{{"", "source remote has"}, {"remote", "source " + config.SourceApplied + " has"}, {config.SourceApplied, ""}} {
		d.Reported[step.read] = true
		s.Publish(d)
		wantText(t, "after "+step.read, s.CheckSources(t.Context()), step.missing)
	}
}

func TestWorkloadsAreLeftToTheExpander(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rt := newStore(), runtimetest.NewFake()
		p, _ := open(t, s, rt)
		d := fromFiles(serving("web")...)
		s.Publish(d)
		if _, ok := s.Expandable(p); ok || len(s.Workloads.Due()) != 0 {
			t.Error("there are no workloads, but they are to be expanded")
		}
		d.Workloads = []*manifests.Object{{Kind: "Deployment"}}
		d.Pods = serving("web", "other")
		s.Publish(d)
		synctest.Wait()
		if got, ok := s.Expandable(p); !ok || len(got.Workloads) != 1 || len(s.Workloads.Due()) != 1 {
			t.Errorf("to be expanded: %t, %d workloads", ok, len(got.Workloads))
		}
		if _, ok := s.Expandable(pool.New(rt, pool.Config{})); ok {
			t.Error("workloads are expanded for a pool that is not attached")
		}
		if views, _ := s.Pods(); len(views) != 1 {
			t.Errorf("the pool was updated beside the expander: %d pods", len(views))
		}
	})
}
