package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// remade edits a pod that runs so that it has to be made anew, which fails once between the end of the old one and the new one, and
// lets a minute pass.
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

func TestAPodThatIsMadeAnewKeepsItsRoom(t *testing.T) {
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

func TestAPodThatIsMadeAnewKeepsItsPorts(t *testing.T) {
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

func TestAPodThatIsMadeAnewIsNotKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, set := range map[string]func(*runner.Pool, *runner.Held){
			"by a cordon": func(p *runner.Pool, h *runner.Held) {
				p.Gate(func(*manifests.Pod) runner.Rule { return runner.Rule{Wait: h} })
			},
			"by a pressure": func(p *runner.Pool, h *runner.Held) { p.Barrier(func(*manifests.Pod) *runner.Held { return h }) },
		} {
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

func TestPodsThatRunAreLeftAloneWhenThereIsLessRoomAfterARestart(t *testing.T) {
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

// slowLook is a runtime in which one pod cannot be seen at first.
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
