package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// times returns when actions of a kind were tried or applied, in seconds since from.
func times(entries []runtimetest.Entry, kind runner.ActionKind, from time.Time) string {
	var b strings.Builder
	for _, e := range entries {
		if e.Action.Kind == kind {
			fmt.Fprintf(&b, "%d ", int(e.At.Sub(from).Seconds()))
		}
	}
	return strings.TrimSpace(b.String())
}

func TestACrashLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		began := time.Now()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptFail)))
		r.pass(20 * time.Minute)
		if got, want := times(r.fake.Journal(), runner.StartContainer, began), "0 0 10 30 70 150 310 610 910"; got != want {
			t.Errorf("starts at %s, want %s", got, want)
		}
		s := r.status("web")
		c := s.Pod.Status.ContainerStatuses[0]
		if c.State.Waiting == nil || c.State.Waiting.Reason != runner.ReasonCrashLoopBackOff || c.RestartCount != 8 {
			t.Errorf("status %+v", c)
		}
		if want := began.Add(1210 * time.Second); s.NextTry.Sub(want).Abs() > time.Second {
			t.Errorf("next try %s, want %s", s.NextTry, want)
		}
	})
}

func TestTheBackOffSurvivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		began := time.Now()
		pod := testPod("web", testContainer("a", runtimetest.ScriptFail))
		r.update(pod)
		r.pass(80 * time.Second) // restarts at 0, 10, 30, 70
		r.restart()
		r.update(pod)
		r.pass(80 * time.Second)
		if got, want := times(r.fake.Journal(), runner.StartContainer, began), "0 0 10 30 70 150"; got != want {
			t.Errorf("starts at %s, want %s", got, want)
		}
	})
}

func TestFailedPullIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		var (
			mu       sync.Mutex
			tries    []runtimetest.Entry
			repaired bool
		)
		r.fake.Fail = func(k manifests.Key, a runner.Action) error {
			if a.Kind != runner.EnsureImage || a.Container != "a" {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, runtimetest.Entry{Key: k, Action: a, At: time.Now()})
			if !repaired {
				return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("no such host")}
			}
			return nil
		}
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)))
		if c := r.status("web").Pod.Status.ContainerStatuses; c[1].State.Running == nil || c[0].State.Waiting.Reason != runner.ReasonImagePullBackOff {
			t.Errorf("status %+v", c)
		}
		r.pass(900 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got, want := times(tries, runner.EnsureImage, began), "0 10 30 70 150 310 610"; got != want {
			t.Errorf("tries at %s, want %s", got, want)
		}
		if n := strings.Count(r.log.String(), "no such host"); n != 1 {
			t.Errorf("warned %d times of the same error", n)
		}
		repaired = true
		mu.Unlock()
		r.pass(20 * time.Second)
		mu.Lock()
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
			t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

func TestSlowPullDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage && a.Container == "a" {
				return 10 * time.Minute
			}
			return time.Millisecond
		}
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		r.pass(time.Second)
		r.expect("at first", `
			CreateSandbox (pod added)
			EnsureImage b
			CreateContainer b (first start)
			StartContainer b (first start)`)
		if w := r.status("web").Why; w != "container a: pulling image busybox:1" {
			t.Errorf("why: %s", w)
		}
		// The other container crashes meanwhile.
		if err := r.fake.Exit(key("web"), "b", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		r.expect("crash", `
			EnsureImage b
			CreateContainer b (exited with 1, restart policy Always)
			StartContainer b (exited with 1, restart policy Always)
			RemoveContainer b (restarted)`)
		r.pass(10 * time.Minute)
		r.expect("pulled", `
			EnsureImage a
			CreateContainer a (first start)
			StartContainer a (first start)`)
	})
}

func TestEditCancelsUnneededPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage {
				return time.Hour
			}
			return time.Millisecond
		}
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		r.pass(30 * time.Minute)
		// a gets another image, b stays: its pull continues and ends half an hour later.
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }))
		r.pass(31 * time.Minute)
		r.expect("b", `
			CreateSandbox (pod added)
			RecordPod (manifest changed)
			EnsureImage b
			CreateContainer b (first start)
			StartContainer b (first start)`)
		r.pass(30 * time.Minute)
		r.expect("a", `
			EnsureImage a
			CreateContainer a (first start)
			StartContainer a (first start)`)
		// A pod that is removed during its pull is gone at once.
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:3" }))
		r.pass(time.Minute)
		r.update()
		r.pass(time.Second)
		if n := len(r.pool.Pods()); n != 0 {
			t.Errorf("%d pods are left", n)
		}
	})
}

func TestOldPodRunsDuringLongCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.CheckPod {
				return 10 * time.Minute
			}
			return time.Millisecond
		}
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		r.pass(time.Second)
		r.journal()
		other := edited(pod, func(p *corev1.Pod) { p.Spec.Hostname = "other" })
		r.update(other)
		r.pass(time.Minute)
		if err := r.fake.Exit(key("web"), "a", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		r.expect("crash during the check", `
			CreateContainer a (exited with 1, restart policy Always)
			StartContainer a (exited with 1, restart policy Always)
			RemoveContainer a (restarted)`)
		r.pass(10 * time.Minute)
		r.expect("checked", `
			CheckPod (pod definition changed)
			StopContainer a (pod definition changed)
			RemoveContainer a (pod definition changed)
			RemoveSandbox (pod definition changed)
			CreateSandbox (pod definition changed)
			EnsureImage a
			CreateContainer a (first start)
			StartContainer a (first start)`)
		// A check that is not needed now is canceled, and nothing was stopped for it.
		r.update(pod)
		r.pass(time.Minute)
		r.update(other)
		r.pass(time.Hour)
		r.expect("taken back", "")
	})
}

func TestGracePeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptStubborn))
		r.update(pod)
		r.journal()
		r.update()
		r.pass(29 * time.Second)
		r.expect("before the grace period is over", "StopContainer a (pod removed)")
		r.pass(time.Second)
		r.expect("after it", `
			KillContainer a (did not stop within 30s)
			RemoveContainer a (pod removed)
			RemoveSandbox (pod removed)`)
	})
}

func TestDeletionGracePeriodOverridesManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptStubborn)))
		uid := string(r.status("web").Pod.UID)
		r.pool.Graces(map[string]time.Duration{uid: time.Hour, "other": 0})
		r.pass(time.Minute)
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Pod.DeletionTimestamp != nil {
			t.Errorf("it is wanted, and is %s, deleted at %v", s.Pod.Status.Phase, s.Pod.DeletionTimestamp)
		}
		r.journal()
		r.update()
		r.pass(50 * time.Minute)
		r.expect("after more than the manifest says", "StopContainer a (pod removed)")
		if s := r.status("web"); s.Pod.DeletionGracePeriodSeconds == nil || *s.Pod.DeletionGracePeriodSeconds != 3600 {
			t.Errorf("it is shown with %v", s.Pod.DeletionGracePeriodSeconds)
		}
		r.pool.Graces(map[string]time.Duration{uid: time.Second})
		r.pass(time.Millisecond)
		r.expect("when it is given less", `
			KillContainer a (did not stop within 1s)
			RemoveContainer a (pod removed)
			RemoveSandbox (pod removed)`)
	})
}

func TestShorterGracePeriodAppliesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptStubborn))
		r.update(pod)
		pod = edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" })
		r.update(pod)
		r.pass(5 * time.Second)
		r.journal()
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3) }))
		r.expect("edit", `
			KillContainer a (did not stop within 3s)
			StartContainer a (ready)
			RemoveContainer a (replaced)
			RecordPod (manifest changed)`)
	})
}

func TestUnkillableProcessIsKilledAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptHang)))
		r.update()
		r.journal()
		began := time.Now()
		r.pass(65 * time.Second)
		if got, want := times(r.fake.Journal(), runner.KillContainer, began), "29 39 49 59"; got != want {
			t.Errorf("killed at %s, want %s", got, want)
		}
		if w := r.status("web").Why; w != "being removed: waiting for a to stop" {
			t.Errorf("why: %s", w)
		}
	})
}

func TestUnobservablePodIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		r.journal()
		r.fake.Blind(runtimetest.ErrBlind)
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }))
		r.pass(time.Hour)
		s := r.status("web")
		if !strings.Contains(s.Why, "containerd does not answer") || s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
		}
		r.update()
		r.pass(time.Hour)
		r.expect("blind", "")
		r.update(pod)
		r.fake.Blind(nil)
		r.settle()
		r.expect("seeing again", "")
		if n := strings.Count(r.log.String(), "does not answer"); n != 1 {
			t.Errorf("warned %d times", n)
		}
		if s := r.status("web"); s.Why != "" {
			t.Errorf("why: %s", s.Why)
		}
	})
}

// panicking panics when it observes one pod.
type panicking struct {
	runner.Runtime
	mu  sync.Mutex
	key manifests.Key
}

func (p *panicking) Observe(ctx context.Context, key manifests.Key) (runner.PodState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == p.key {
		panic("out of its mind")
	}
	return p.Runtime.Observe(ctx, key)
}

func TestPanicOfOnePodDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := &panicking{Runtime: r.fake, key: key("x")}
		r.runtime = p
		r.start()
		r.update(testPod("x", testContainer("a", runtimetest.ScriptServe)), testPod("y", testContainer("a", runtimetest.ScriptServe)))
		if s := r.status("y"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("y is %s", s.Pod.Status.Phase)
		}
		if s := r.status("x"); s.Why != "internal error: panic: out of its mind" || s.Trouble != (model.Trouble{Text: s.Why}) {
			t.Errorf("why: %s, %+v", s.Why, s.Trouble)
		}
		p.mu.Lock()
		p.key = manifests.Key{}
		p.mu.Unlock()
		r.pass(time.Minute) // the longest wait: each change of other pods causes another try, and another crash
		if s := r.status("x"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
			t.Errorf("x is %s, %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

// lying claims to have removed containers, but does not.
type lying struct {
	runner.Runtime
	mu  sync.Mutex
	lie int
}

func (l *lying) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if a.Kind == runner.RemoveContainer {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lie++
		return nil
	}
	return l.Runtime.Apply(ctx, key, pod, a)
}

func TestActionWithoutEffectIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := &lying{Runtime: r.fake}
		r.runtime = l
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }))
		r.pass(time.Minute)
		if l.lie < 3 || l.lie > 30 {
			t.Errorf("tried %d times in a minute", l.lie)
		}
	})
}
