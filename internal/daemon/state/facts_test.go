package state

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/why"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/runner/workload"
)

func TestARevisionIsJudgedByWhatWasSeenOfIt(t *testing.T) {
	status := func(edit func(*podstatus.Status)) podstatus.Status {
		s := podstatus.Status{Pod: &corev1.Pod{}, Looked: true, Why: "w", Images: map[string]string{"c": "sha256:1"}}
		edit(&s)
		return s
	}
	ready := func(is corev1.ConditionStatus) func(*podstatus.Status) {
		return func(s *podstatus.Status) {
			s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: is}}
		}
	}
	pod := runtimetest.NewPod("web")
	halted := podstatus.Of(podstatus.Input{Key: pod.Key(), Desired: pod, Observed: plan.Observed{Halt: &runner.Halt{Reason: runner.ReasonDrained}}})
	halted.Looked = true
	for name, c := range map[string]struct {
		status podstatus.Status
		want   string
	}{
		"not looked at":    {status(func(s *podstatus.Status) { s.Looked = false }), "nothing"},
		"may not run":      {halted, "nothing"},
		"cannot be judged": {status(ready(corev1.ConditionUnknown)), "nothing"},
		"not ready":        {status(ready(corev1.ConditionFalse)), "ready false, 0 restarts"},
		"ready":            {status(ready(corev1.ConditionTrue)), "ready true, 0 restarts"},
		"completed":        {status(func(s *podstatus.Status) { s.Pod.Status.Phase = corev1.PodSucceeded }), "ready true, 0 restarts"},
		"restarted": {status(func(s *podstatus.Status) {
			s.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: 2}}
			s.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}, {RestartCount: 4}}
		}), "ready false, 7 restarts"},
	} {
		got, o := "nothing", observedRevision(c.status)
		if o != nil {
			got = fmt.Sprintf("ready %t, %d restarts", o.Ready, o.Restarts)
			if o.Why != "w" || o.Images["c"] != "sha256:1" {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWhatIsSaidOfARevision(t *testing.T) {
	byHand, failed := &rollout.Rollback{Kind: rollout.Manual, Reason: "x"}, &rollout.Rollback{Kind: rollout.Automatic, Reason: "not Ready in time", Culprit: "db"}
	for name, c := range map[string]struct {
		view             rollout.View
		rollback, update string
		fact             why.Rollback
	}{
		"as written": {view: rollout.View{Active: 2, Wanted: 2}},
		"by hand": {
			view: rollout.View{Active: 1, Wanted: 2, Rollback: byHand}, rollback: "revision 1 runs instead of 2 until the manifest changes: by hand", fact: why.Rollback{Wanted: 2, ByHand: true},
		},
		"automatic": {
			view:     rollout.View{Active: 1, Wanted: 2, Rollback: failed},
			rollback: "revision 1 runs instead of 2 until the manifest changes: not Ready in time", fact: why.Rollback{Wanted: 2, Culprit: "db"},
		},
		"waits": {
			view:   rollout.View{Active: 1, Wanted: 2, Waits: runtimetest.KeyOf("db")},
			update: "revision 2 waits until pod default/db, which precedes it in its update group, is Ready",
		},
		"trial": {view: rollout.View{Active: 2, Wanted: 2, Base: 1, Trial: &rollout.Trial{}}, update: "revision 2 is on trial: it must become Ready in time, or it is rolled back to revision 1"},
		"soak":  {view: rollout.View{Active: 2, Wanted: 2, Base: 1, Trial: &rollout.Trial{ReadyAt: 1}}, update: "revision 2 is on trial: it must stay Ready, or it is rolled back to revision 1"},
	} {
		c.fact.Text = c.rollback
		if RollbackText(c.view) != c.rollback || UpdateText(c.view) != c.update || RollbackOf(c.view) != c.fact {
			t.Errorf("%s: %q, %q, %+v", name, RollbackText(c.view), UpdateText(c.view), RollbackOf(c.view))
		}
	}
}

// removing is a runtime that still removes pods.
type removing []ctrd.Removal

func (r removing) Removals() []ctrd.Removal { return slices.Clone(r) }

func TestAPodIsShownUntilNothingOfItIsLeft(t *testing.T) { synctest.Test(t, testRemovals) } // the text has a duration

func testRemovals(t *testing.T) {
	var l Removals
	since := time.Now().Add(-time.Minute)
	gone := func(name, uid string, since time.Time, err error) ctrd.Removal {
		return ctrd.Removal{Pod: runtimetest.NewPod(name), UID: uid, Since: since, Err: err, Failed: 3, Next: since.Add(time.Hour)}
	}
	l.Attach(struct{}{})()
	detach := l.Attach(removing{
		gone("web", "2", since.Add(time.Second), nil), gone("web", "1", since, errors.New("busy\nmount")), gone("again", "3", since, nil), gone("db", "4", since, nil),
	})
	views := l.Views([]node.PodView{{Pod: runtimetest.NewPod("again").Object}})
	facts := l.Facts([]why.Pod{{Object: runtimetest.NewPod("again").Object}})
	if len(views) != 2 || len(facts) != 2 {
		t.Fatalf("%d views and %d facts, want those of db and web", len(views), len(facts))
	}
	for i, want := range []struct{ name, uid, text, message string }{
		{"db", "4", "being removed: its containers have exited; removing mounts, network and cgroups for 1m0s", ""},
		{"web", "1", "removing mounts, network and cgroups for 1m0s, failed 3 times: busy; mount", "busy\nmount"},
	} {
		v, f := views[i], facts[i]
		if p := v.Pod; p.Name != want.name || string(p.UID) != want.uid || p.Status.Phase != corev1.PodUnknown || !p.DeletionTimestamp.Time.Equal(since) || !v.NextTry.Equal(since.Add(time.Hour)) {
			t.Errorf("%s: %+v", want.name, v)
		}
		if !strings.HasSuffix(v.Why, want.text) || v.Origin.File != "/m/"+want.name+".yaml" {
			t.Errorf("%s: %q from %s", want.name, v.Why, v.Origin.File)
		}
		if f.Object.Status.Phase != corev1.PodPending || f.Where != "/m/"+want.name+".yaml:1" || !f.NextTry.Equal(v.NextTry) {
			t.Errorf("%s: fact %+v", want.name, f)
		}
		if tr := f.Trouble; tr.Kind != model.TroubleRemoving || tr.Message != want.message || tr.Count != 3 || tr.Text != v.Why {
			t.Errorf("%s: trouble %+v", want.name, tr)
		}
	}
	detach()
	if left := l.Views(nil); len(left) != 0 {
		t.Errorf("without its runtime: %+v", left)
	}
}

// updated is a pool that records the updates it received.
type updated struct {
	graces     map[string]time.Duration
	conditions map[string][]corev1.PodCondition
}

func (u *updated) Graces(byUID map[string]time.Duration)             { u.graces = byUID }
func (u *updated) Conditions(byUID map[string][]corev1.PodCondition) { u.conditions = byUID }

func TestAPoolGetsWhatAnAPIServerSaysOfBoundPods(t *testing.T) {
	var b Bound
	first, second := &updated{}, &updated{}
	b.SetGracePeriods(map[types.UID]int64{"a": 5, "b": math.MaxInt64})
	b.attach(first)
	want := map[string]time.Duration{"a": 5 * time.Second, "b": math.MaxInt32 * time.Second}
	if !maps.Equal(first.graces, want) || len(first.conditions) != 0 {
		t.Errorf("a pool that comes later gets %v and %v", first.graces, first.conditions)
	}
	b.SetConditions(map[types.UID][]corev1.PodCondition{"a": {{Type: "gate"}}})
	b.SetGracePeriods(nil)
	if len(first.graces) != 0 || len(first.conditions["a"]) != 1 {
		t.Errorf("the pool gets %v and %v", first.graces, first.conditions)
	}
	b.attach(nil)
	b.SetConditions(nil)
	if len(first.conditions) != 1 {
		t.Error("a pool that has ended is told")
	}
	if b.attach(second); second.conditions == nil || len(second.conditions) != 0 {
		t.Errorf("the next pool gets %v", second.conditions)
	}
}

func TestEachSubscriberIsWokenOncePerRead(t *testing.T) {
	var c Changes
	c.Notify() // nobody listens
	one, endOne := c.Subscribe()
	two, endTwo := c.Subscribe()
	defer endTwo()
	c.Notify()
	c.Notify()
	if len(one) != 1 || len(two) != 1 {
		t.Errorf("%d and %d signals", len(one), len(two))
	}
	<-one
	<-two
	endOne()
	if c.Notify(); len(one) != 0 || len(two) != 1 {
		t.Errorf("after the end of one: %d and %d signals", len(one), len(two))
	}
}

func TestSubscribersHearOfWorkloadsOnlyWhatIsNew(t *testing.T) {
	changes := &Changes{}
	w := newWorkloads(changes)
	woken, stop := changes.Subscribe()
	defer stop()
	clash, run := []workload.Clash{{Pod: runtimetest.KeyOf("web")}}, time.Unix(1e9, 0)
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { w.SetResults(map[string]string{"default/job": "Complete"}, nil) }, 1},
		{func() {
			w.SetResults(map[string]string{"default/job": "Complete"}, map[string]time.Time{"default/cron": run})
		}, 0},
		{func() { w.SetClashes(clash) }, 1},
		{func() { w.SetClashes(slices.Clone(clash)) }, 0},
		{func() { w.SetClashes(nil) }, 1},
	} {
		step.do()
		if len(woken) != step.want {
			t.Errorf("step %d: %d signals, want %d", i, len(woken), step.want)
		}
		for len(woken) > 0 {
			<-woken
		}
	}
	if w.Finished()["default/job"] != "Complete" || !w.LastRuns()["default/cron"].Equal(run) {
		t.Errorf("finished %v, last runs %v", w.Finished(), w.LastRuns())
	}
	w.changed()
	if len(w.Due()) != 0 {
		t.Error("the expander is woken though there were never workloads")
	}
	w.Enable()
	if w.changed(); len(w.Due()) != 1 {
		t.Errorf("%d signals to the expander", len(w.Due()))
	}
}

func TestAnInputTellsOfPodsThatClashAndTheOwnDirectoryIsHidden(t *testing.T) {
	s := newStore()
	own := model.Input{Source: config.SourceApplied, Input: "/var/lib/monopod/applied", State: model.InputAccepted}
	full := model.Input{Source: config.SourceApplied, Input: "/var/lib/monopod/applied", State: model.InputAccepted, Objects: []string{"ConfigMap default/app"}}
	web := model.Input{Source: config.SourceFile, Input: "/m/web.yaml", State: model.InputAccepted}
	bad := model.Input{Source: config.SourceFile, Input: "/m/bad.yaml", State: model.InputRefused, Errors: []string{"first"}}
	s.Publish(model.Desired{Inputs: []model.Input{own, full, web, bad}})
	if got := s.Inputs(); len(got) != 3 || got[0].Objects == nil || got[1].State != model.InputAccepted {
		t.Errorf("%+v", got)
	}
	at := func(file string) manifests.Origin {
		return manifests.Origin{Source: config.SourceFile, File: file, Line: 3}
	}
	s.Workloads.SetClashes([]workload.Clash{{Pod: runtimetest.KeyOf("web-0"), At: at(web.Input), By: at("/m/first.yaml")}, {At: at(bad.Input)}, {At: at("/m/gone.yaml")}})
	got := s.Inputs()
	line := "/m/web.yaml:3: pod default/web-0 of this workload is not run: another pod of that name is defined in /m/first.yaml:3"
	if got[1].State != model.InputConflict || len(got[1].Errors) != 1 || !strings.HasPrefix(got[1].Errors[0], line) {
		t.Errorf("%+v", got[1])
	}
	if got[2].State != model.InputRefused || len(got[2].Errors) != 2 || got[2].Errors[0] != "first" {
		t.Errorf("%+v", got[2])
	}
	if d, _ := s.Desired(); d.Inputs[2].State != model.InputAccepted || len(d.Inputs[3].Errors) != 1 {
		t.Errorf("the published inputs were changed: %+v", d.Inputs)
	}
}

func TestWhyAPodIsNotMirroredIsKeptUntilItIs(t *testing.T) {
	var u Unmirrored
	key := runtimetest.KeyOf("web")
	u.Set(key, nil)
	u.Set(key, errors.New("refused:\nno such namespace"))
	if got := u.Reason(key); got != "refused:; no such namespace" || u.Reason(runtimetest.KeyOf("db")) != "" {
		t.Errorf("%q, and of another one %q", got, u.Reason(runtimetest.KeyOf("db")))
	}
	u.Set(key, nil)
	if none := (*Unmirrored)(nil); u.Reason(key)+none.Reason(key) != "" {
		t.Error("there still is a reason")
	}
}

func TestTheHashOfAPodFollowsItsRecord(t *testing.T) {
	m := manifestHashes{}
	one := runtimetest.NewPod("web", runtimetest.NewContainer("c", "1"))
	two := runtimetest.Edited(one, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" })
	for _, p := range []*manifests.Pod{one, one, two, one} {
		if got := m.get(p); got != rollout.Hash(p.Object) {
			t.Errorf("of %s: %q", p.Object.Spec.Containers[0].Image, got)
		}
	}
	if m.get(nil) != "" || len(m) != 1 {
		t.Errorf("%q without a record; %v", m.get(nil), m)
	}
}
