package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

// debugger is an ephemeral container.
func debugger(name, script string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(testContainer(name, script))}
}

func (r *rig) uid(name string) types.UID { return types.UID(r.fake.State(key(name)).Sandbox.UID) }

// debug adds ephemeral containers and waits until the bubble is idle.
func (r *rig) debug(name string, add ...corev1.EphemeralContainer) error {
	err := r.pool.AddEphemeral(r.t.Context(), key(name), r.uid(name), add)
	r.settle()
	return err
}

// states returns the state of the ephemeral containers of a pod.
func (r *rig) states(name string) string {
	var all []string
	for _, c := range r.status(name).Pod.Status.EphemeralContainerStatuses {
		switch {
		case c.State.Running != nil:
			all = append(all, c.Name+" runs")
		case c.State.Terminated != nil:
			all = append(all, fmt.Sprint(c.Name, " ended ", c.State.Terminated.ExitCode))
		default:
			all = append(all, c.Name+" "+c.State.Waiting.Reason)
		}
	}
	return strings.Join(all, ", ")
}

func TestEphemeralContainerLivesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		r.journal()
		if err := r.debug("web", debugger("one", runtimetest.ScriptServe), debugger("two", runtimetest.ScriptFail)); err != nil {
			t.Fatal(err)
		}
		r.expect("added", `
			RecordEphemeral
			EnsureImage one
			CreateContainer one (ephemeral container added)
			StartContainer one (ephemeral container added)
			EnsureImage two
			CreateContainer two (ephemeral container added)
			StartContainer two (ephemeral container added)
			FinishContainer two (exited with 3)`)
		if got := r.states("web"); got != "one runs, two ended 3" {
			t.Error(got)
		}
		if err := r.fake.Exit(key("web"), "one", 5); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Hour)
		r.expect("ended", "FinishContainer one (exited with 5)")
		r.restart()
		r.update(pod)
		r.expect("after a restart", "")
		if got := r.states("web"); got != "one ended 5, two ended 3" {
			t.Error(got)
		}
		r.update()
		r.expect("removed", `
			StopContainer a (pod removed)
			RemoveContainer one (pod removed)
			RemoveContainer two (pod removed)
			RemoveContainer a (pod removed)
			RemoveSandbox (pod removed)`)
	})
}

func TestEphemeralContainerOutlivesEdits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		if err := r.debug("web", debugger("dbg", runtimetest.ScriptServe)); err != nil {
			t.Fatal(err)
		}
		r.journal()
		pod = edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: "1"}} })
		r.update(pod)
		r.pass(time.Second)
		r.expect("an edit of another container", `
			EnsureImage a
			CreateContainer a (definition changed)
			StopContainer a (definition changed)
			StartContainer a (ready)
			RemoveContainer a (replaced)
			RecordPod (manifest changed)`)
		if got := r.states("web"); got != "dbg runs" {
			t.Error(got)
		}
		was := r.uid("web")
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Hostname = "other" }))
		r.pass(time.Minute)
		if got := r.states("web"); got != "" || r.uid("web") == was {
			t.Errorf("a pod that is made anew has %q", got)
		}
	})
}

func TestImageOfAnEphemeralContainerIsPulledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var online atomic.Bool
		r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
			if a.Kind == runner.EnsureImage && a.Container == "dbg" && !online.Load() {
				return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("offline")}
			}
			return nil
		}
		r.start().update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		if err := r.debug("web", debugger("dbg", runtimetest.ScriptServe)); err != nil {
			t.Fatal(err)
		}
		if got := r.states("web"); got != "dbg ImagePullBackOff" {
			t.Error(got)
		}
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || !strings.Contains(s.Why, "ephemeral container dbg") {
			t.Errorf("%s: %q", s.Pod.Status.Phase, s.Why)
		}
		online.Store(true)
		r.pass(10 * time.Minute)
		if got := r.states("web"); got != "dbg runs" {
			t.Error(got)
		}
	})
}

func TestEphemeralContainersThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		dbg := debugger("dbg", runtimetest.ScriptServe)
		if err := errors.Join(r.debug("web", dbg), r.debug("web", dbg)); err != nil {
			t.Errorf("the same twice: %v", err)
		}
		other := dbg
		other.Image = "other:1"
		var many []corev1.EphemeralContainer
		for i := range runner.MaxEphemeral {
			many = append(many, debugger(fmt.Sprint("d", i), ""))
		}
		for name, add := range map[string][]corev1.EphemeralContainer{"another of the name": {other}, "a container": {debugger("a", "")}, "too many": many} {
			if err := r.debug("web", add...); !errors.Is(err, pool.ErrEphemeral) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, uid := range map[string]types.UID{"web": "other", "no": r.uid("web"), "none": ""} {
			if err := r.pool.AddEphemeral(t.Context(), key(name), uid, []corev1.EphemeralContainer{dbg}); !errors.Is(err, pool.ErrNotRunning) {
				t.Errorf("%s with uid %q: %v", name, uid, err)
			}
		}
		if got := r.states("web"); got != "dbg runs" {
			t.Error(got)
		}
		uid := r.uid("web")
		r.stop()
		if err := r.pool.AddEphemeral(t.Context(), key("web"), uid, []corev1.EphemeralContainer{debugger("late", "")}); !errors.Is(err, pool.ErrNotRunning) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestEphemeralContainersThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		full := errors.New("no space left on device")
		r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
			if a.Kind == runner.RecordEphemeral {
				return full
			}
			return nil
		}
		r.start().update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		if err := r.debug("web", debugger("dbg", "")); !errors.Is(err, full) {
			t.Error(err)
		}
		if got := r.states("web"); got != "" {
			t.Error(got)
		}
	})
}

func TestCallerThatGivesUpAddsNoEphemeralContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.StartContainer {
				return time.Minute
			}
			return 0
		}
		r.start().update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.pool.AddEphemeral(ctx, key("web"), r.uid("web"), []corev1.EphemeralContainer{debugger("dbg", "")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		r.pass(time.Hour)
		if got := r.states("web"); got != "" {
			t.Error(got)
		}
	})
}
