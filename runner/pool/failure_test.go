package pool_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// trouble fails actions of one kind and records when they were tried.
type trouble struct {
	mu    sync.Mutex
	kind  runner.ActionKind
	err   error
	tries []runtimetest.Entry
}

func (f *trouble) fail(k manifests.Key, a runner.Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.Kind != f.kind {
		return nil
	}
	f.tries = append(f.tries, runtimetest.Entry{Key: k, Action: a, At: time.Now()})
	return f.err
}

func (f *trouble) times(from time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return times(f.tries, f.kind, from)
}

// over ends the failures.
func (f *trouble) over() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = nil
}

func TestFailedStartIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		f := &trouble{kind: runner.StartContainer, err: &runner.StepError{Reason: runner.ReasonRunContainerError, Err: errors.New("no such device")}}
		r.fake.Fail = f.fail
		r.start()
		began := time.Now()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.pass(200 * time.Second)
		if got, want := f.times(began), "0 1 3 7 15 31 63 123 183"; got != want {
			t.Errorf("tried at %s, want %s", got, want)
		}
		f.over()
		r.pass(time.Minute)
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
			t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

func TestRefusedStartIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		began := time.Now()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptCannotStart)))
		r.pass(100 * time.Second)
		if got, want := times(r.fake.Journal(), runner.CreateContainer, began), "0 0 10 30 70"; got != want {
			t.Errorf("tried at %s, want %s", got, want)
		}
	})
}

func TestFailedNetworkIsRetriedWithBackOff(t *testing.T) {
	needsIP := testContainer("a", runtimetest.ScriptServe)
	needsIP.Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	tests := []struct {
		name      string
		container corev1.Container
	}{
		{"for a container that only starts with it", testContainer("a", runtimetest.ScriptServe)},
		{"for a container that is created with its address", needsIP},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				began := time.Now()
				var adds []runtimetest.Entry
				broken := true
				r.fake.NetworkFail = func(k manifests.Key) error { // called with the machine locked
					adds = append(adds, runtimetest.Entry{Key: k, Action: runner.Action{Kind: runner.SetupNetwork}, At: time.Now()})
					if broken {
						return errors.New("no plugin bridge")
					}
					return nil
				}
				r.start()
				r.update(testPod("web", tt.container))
				r.pass(20 * time.Second)
				r.stop()
				if got, want := times(adds, runner.SetupNetwork, began), "0 1 3 7 15"; got != want {
					t.Errorf("set up at %s, want %s", got, want)
				}
				if s := r.status("web"); s.Pod.Status.ContainerStatuses[0].State.Waiting.Reason != runner.ReasonCreatePodSandboxError || !strings.Contains(s.Why, "no plugin bridge") {
					t.Errorf("%+v, %s", s.Pod.Status.ContainerStatuses, s.Why)
				}
				broken = false
				r.restart()
				r.update(testPod("web", tt.container))
				if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
					t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
				}
			})
		})
	}
}

func TestHistorySurvivesRebootWithSlowRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		if err := r.fake.Exit(key("web"), "b", 1); err != nil {
			t.Fatal(err)
		}
		r.settle()
		r.fake.Reboot()
		r.stop()
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage && a.Container == "b" {
				return time.Minute
			}
			return 0
		}
		r.restart()
		r.update(pod)
		r.pass(30 * time.Second)
		st := r.fake.State(key("web"))
		i := slices.IndexFunc(st.Containers, func(c runner.Container) bool { return c.Name == "b" })
		if !st.Sandbox.Alive || len(st.Containers) != 2 || st.Containers[i].State != runner.ContainerExited || st.Containers[1-i].State != runner.ContainerRunning {
			t.Errorf("a should run, and the old record of b be there until the new image is: %+v", st)
		}
		r.pass(time.Minute)
		for i, want := range []int32{1, 2} {
			if c := r.status("web").Pod.Status.ContainerStatuses[i]; c.RestartCount != want || c.State.Running == nil || c.LastTerminationState.Terminated == nil {
				t.Errorf("container %d: %+v", i, c)
			}
		}
	})
}

func TestSandboxStaysWhileContainerCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		f := &trouble{kind: runner.RemoveContainer, err: errors.New("device or resource busy")}
		r.fake.Fail = f.fail
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.journal()
		r.update()
		r.pass(10 * time.Second)
		r.expect("removal", "StopContainer a (pod removed)")
		f.over()
		r.pass(10 * time.Second)
		r.expect("after the repair", `
			RemoveContainer a (pod removed)
			RemoveSandbox (pod removed)`)
	})
}

func TestAnEditEndsTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
			if st := r.pool.Pods(); a.Kind == runner.EnsureImage && len(st) == 1 && st[0].Pod.Spec.Containers[0].Image == badImage {
				return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("no such image")}
			}
			return nil
		}
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		bad := edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = badImage })
		r.update(bad)
		r.pass(200 * time.Second)
		r.update(edited(bad, func(*corev1.Pod) {})) // re-reading the same content changes nothing
		r.pass(10 * time.Second)
		if s := r.status("web"); time.Until(s.NextTry) < time.Minute {
			t.Errorf("next try in %s", time.Until(s.NextTry))
		}
		r.update(pod)
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
			t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

func TestNewAssignmentInterruptsPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.CreateContainer {
				return 10 * time.Second
			}
			return 0
		}
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)))
		r.pass(5 * time.Second)
		r.update()
		r.expect("removal while the first container is made", `
			CreateSandbox (pod added)
			EnsureImage a
			RemoveSandbox (pod removed)`)
	})
}

// eventless is a runtime that loses its events.
type eventless struct {
	runner.Runtime
	mu     sync.Mutex
	broken chan struct{}
}

func (d *eventless) Watch(ctx context.Context, _ func(manifests.Key)) error {
	d.mu.Lock()
	c := d.broken
	d.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil
	case <-c:
		return errors.New("connection reset")
	}
}

// interrupt ends the stream of events.
func (d *eventless) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.broken)
	d.broken = make(chan struct{})
}

// eventlessRig returns a rig whose runtime sends no events.
func eventlessRig(t *testing.T) (*rig, *eventless) {
	t.Helper()
	r := newRig(t)
	d := &eventless{Runtime: r.fake, broken: make(chan struct{})}
	r.runtime = d
	return r.start(), d
}

func TestAllPodsAreObservedAfterLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := eventlessRig(t)
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		if err := r.fake.Exit(key("web"), "a", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		if st := r.fake.State(key("web")); st.Containers[0].State != runner.ContainerExited {
			t.Fatalf("the exit was noticed without an event: %+v", st)
		}
		d.interrupt()
		r.pass(time.Second)
		if st := r.fake.State(key("web")); st.Containers[0].State != runner.ContainerRunning {
			t.Errorf("still not noticed: %+v", st)
		}
		// Without any event it is noticed by the resync.
		if err := r.fake.Exit(key("web"), "a", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(11 * time.Minute)
		if st := r.fake.State(key("web")); st.Containers[0].State != runner.ContainerRunning {
			t.Errorf("never noticed: %+v", st)
		}
	})
}

// A pod can be created at the end of an interruption, after the observation that found it removed.
func TestUnknownPodIsFoundAfterLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := eventlessRig(t)
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		left := r.fake.State(key("web"))
		r.update()
		r.pass(time.Minute)
		r.fake.Put(key("web"), left)
		d.interrupt()
		r.pass(time.Minute)
		if st := r.fake.State(key("web")); st.Sandbox != nil || len(st.Containers) > 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
}

func TestZeroKeyOfWatchRetriesFailuresAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		f := &trouble{kind: runner.EnsureImage, err: &runner.StepError{Reason: runner.ReasonErrImageNeverPull, Err: errors.New("no such image")}}
		r.fake.Fail = f.fail
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.pass(35 * time.Second) // the next attempt would be at 70 s
		f.over()
		r.fake.Changed()
		r.pass(time.Second)
		if got, want := f.times(began), "0 10 30 35"; got != want {
			t.Errorf("tried at %s, want %s", got, want)
		}
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

func TestTroubleContainsMissingProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		want := cause.Cause{
			Kind: cause.ProfileUnusable, Fault: cause.NotFound, Container: "a", Object: cause.Object{Kind: cause.Seccomp, Name: "/profiles/p.json"}, Detail: "no such file",
		}
		r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
			if a.Kind != runner.CreateContainer {
				return nil
			}
			return &runner.StepError{Reason: runner.ReasonCreateContainerError, Err: cause.Wrap(errors.New("no such file"), want)}
		}
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		if got := r.status("web").Trouble; got.Cause != want || got.Reason != runner.ReasonCreateContainerError {
			t.Errorf("trouble %+v", got)
		}
	})
}
