package pool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/pool"
)

// remade edits a running pod so that it must be recreated. The creation fails once between the end of the old pod and the new one. Then a
// minute passes.
func (r *rig) remade(pod *manifests.Pod, more ...*manifests.Pod) {
	failed := false
	r.fake.Fail = func(key manifests.Key, a runner.Action) error {
		if a.Kind == runner.CreateSandbox && key == pod.Key() && !failed {
			failed = true
			return errors.New("not now")
		}
		return nil
	}
	r.update(append(more, edited(pod, func(p *corev1.Pod) { p.Spec.Hostname = "other" }))...)
	r.pass(time.Minute)
	if !failed {
		r.t.Error("it was not made anew")
	}
}

func TestRecreatedPodKeepsItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		a, waits := requesting("a", "3", "", ""), requesting("waits", "3", "", "")
		r.update(a)
		r.update(waits, a)
		r.phases("a:Running waits:Pending/OutOfcpu", "a", "waits")
		r.remade(a, waits)
		r.phases("a:Running waits:Pending/OutOfcpu", "a", "waits")
		r.update(waits)
		r.pass(time.Minute)
		r.phases("waits:Running", "waits")
	})
}

func TestRecreatedPodKeepsItsPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		serving := func(name string) *manifests.Pod {
			return edited(requesting(name, "", "", ""), func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			})
		}
		a, waits := serving("a"), serving("waits")
		r.update(a)
		r.update(waits, a)
		r.phases("a:Running waits:Pending/HostPortConflict", "a", "waits")
		r.remade(a, waits)
		r.phases("a:Running waits:Pending/HostPortConflict", "a", "waits")
	})
}

// keptOut are the ways to keep new pods from starting.
func keptOut() map[string]func(*pool.Pool, *runner.Held) {
	return map[string]func(*pool.Pool, *runner.Held){
		"by a cordon": func(p *pool.Pool, h *runner.Held) {
			p.Gate(func(*manifests.Pod) runner.Rule { return runner.Rule{Wait: h} })
		},
		"by a pressure": func(p *pool.Pool, h *runner.Held) { p.Barrier(func(*manifests.Pod) *runner.Held { return h }) },
	}
}

func TestRecreatedPodIsNotKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, set := range keptOut() {
			r := newRig(t).start()
			a := requesting("a", "3", "", "")
			r.update(a)
			set(r.pool, &runner.Held{Reason: "Kept", Message: "out"})
			r.settle()
			r.remade(a)
			if s := r.status("a"); s.Pod.Status.Phase != corev1.PodRunning {
				t.Errorf("%s: %s: %s", name, s.Pod.Status.Phase, s.Why)
			}
			r.update()
			r.pass(time.Minute)
			r.update(a)
			r.pass(time.Minute)
			if s := r.status("a"); s.Pod.Status.Reason != "Kept" {
				t.Errorf("%s: one that comes again: %s %s", name, s.Pod.Status.Phase, s.Pod.Status.Reason)
			}
			r.stop()
		}
	})
}

// killedBetween edits a running pod so that it must be recreated, and kills the agent after the old pod is gone and before the new one
// exists. Then it starts the next agent.
func (r *rig) killedBetween(pod *manifests.Pod, more ...*manifests.Pod) (edit *manifests.Pod) {
	r.fake.Fail = func(key manifests.Key, a runner.Action) error {
		if a.Kind == runner.CreateSandbox && key == pod.Key() {
			return errors.New("not now")
		}
		return nil
	}
	edit = edited(pod, func(p *corev1.Pod) { p.Spec.Hostname += "x" })
	r.update(append(more, edit)...)
	r.pass(time.Minute)
	if st, err := r.fake.Observe(r.t.Context(), pod.Key()); err != nil || st.Sandbox != nil || st.Place == nil {
		r.t.Errorf("between the old one and the new one: %+v, %v", st, err)
	}
	r.stop()
	r.fake = r.fake.Restart()
	r.fake.Fail = nil
	r.fake.ClearJournal()
	r.start()
	return edit
}

func TestRecreatedPodKeepsItsPlaceAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, set := range keptOut() {
			r := newRig(t).start()
			a := requesting("a", "3", "", "")
			r.update(a)
			edit := r.killedBetween(a)
			set(r.pool, &runner.Held{Reason: "Kept", Message: "out"})
			r.update(edit)
			r.pass(time.Minute)
			if s := r.status("a"); s.Pod.Status.Phase != corev1.PodRunning || s.Pod.Spec.Hostname != "x" {
				t.Errorf("%s: %s: %s", name, s.Pod.Status.Phase, s.Why)
			}
			r.stop()
		}
	})
}

func TestRoomOfRecreatedPodStaysReservedAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		a, waits := requesting("a", "3", "", ""), requesting("waits", "3", "", "")
		r.update(a)
		edit := r.killedBetween(a)
		unread := model.Desired{Pods: []*manifests.Pod{waits}}
		r.pool.Update(unread)
		r.pass(time.Minute)
		r.phases("waits:Pending/OutOfcpu", "waits")
		r.update(waits, edit)
		r.phases("a:Running waits:Pending/OutOfcpu", "a", "waits")

		edit = r.killedBetween(edit, waits)
		r.update(waits) // now it is known that the pod is not desired
		r.phases("waits:Running", "waits")
		if keys, err := r.fake.List(t.Context()); err != nil || len(keys) != 1 {
			t.Errorf("left: %v, %v", keys, err)
		}
		r.update(waits, edit)
		r.phases("a:Pending/OutOfcpu waits:Running", "a", "waits")
	})
}

func TestEditThatDoesNotFitKeepsPreviousEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		a, other := requesting("a", "2", "", ""), requesting("other", "2", "", "")
		r.update(a, other)
		var failing atomic.Bool
		failing.Store(true)
		r.fake.Fail = func(key manifests.Key, action runner.Action) error {
			if action.Kind == runner.CreateSandbox && key == a.Key() && failing.Load() {
				return errors.New("not now")
			}
			return nil
		}
		first := edited(a, func(p *corev1.Pod) { p.Spec.Hostname = "first" })
		r.update(first, other)
		r.pass(time.Minute)
		second := edited(requesting("a", "3", "", ""), func(p *corev1.Pod) { p.Spec.Hostname = "second" })
		r.update(second, other)
		failing.Store(false)
		r.pass(time.Minute)
		if st, err := r.fake.Observe(t.Context(), a.Key()); err != nil || st.Sandbox == nil || st.Sandbox.Pod.Object.Spec.Hostname != "first" {
			t.Fatalf("the pod is down: %+v, %v", st, err)
		}
		if s := r.status("a"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s: %s", s.Pod.Status.Phase, s.Why)
		}
		r.update(second)
		r.pass(time.Minute)
		if st, err := r.fake.Observe(t.Context(), a.Key()); err != nil || st.Sandbox == nil || st.Sandbox.Pod.Object.Spec.Hostname != "second" {
			t.Errorf("with room: %+v, %v", st, err)
		}
		r.phases("a:Running", "a")
	})
}

func TestRoomOfPodWithUnreadSourceStaysReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		a, waits := requesting("a", "3", "", ""), requesting("waits", "3", "", "")
		r.update(a)
		r.restart()
		r.pool.Update(model.Desired{Pods: []*manifests.Pod{waits}})
		r.pass(time.Minute)
		r.phases("a:Running waits:Pending/OutOfcpu", "a", "waits")
	})
}

func TestRunningPodsSurviveReducedRoomAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		low, high := requesting("low", "2", "", "1"), requesting("high", "2", "", "2")
		r.update(low, high)
		r.phases("low:Running high:Running", "low", "high")
		r.cfg.Room = room("3", "4Gi")
		slow := &slowLook{key: high.Key()}
		r.stop()
		r.fake = r.fake.Restart()
		slow.Runtime, r.runtime = r.fake, slow
		r.start()
		r.journal()
		r.update(low, high)
		r.pass(time.Minute)
		r.expect("with less room", "")
		r.phases("low:Running high:Running", "low", "high")
	})
}

// slowLook is a runtime in which one pod cannot be observed at first.
type slowLook struct {
	runner.Runtime
	key   manifests.Key
	looks int
}

// Observe implements runner.Runtime.
func (s *slowLook) Observe(ctx context.Context, key manifests.Key) (runner.PodState, error) {
	if key == s.key {
		if s.looks++; s.looks < 5 {
			return runner.PodState{}, errors.New("not now")
		}
	}
	return s.Runtime.Observe(ctx, key)
}
