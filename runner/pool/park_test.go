package pool_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// TestIdlePodHasNoGoroutine checks that parked workers still react: to an event, an edit, a time, and the shutdown of the pool.
func TestIdlePodHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		var pods []*manifests.Pod
		for i := range 20 {
			pods = append(pods, testPod(fmt.Sprint("p", i), testContainer("c", "sleep inf")))
		}
		parked := func(when string, want int) {
			t.Helper()
			if got, all := r.pool.Parked(); got != want {
				t.Errorf("%s: %d of %d pods are at rest, not %d", when, got, all, want)
			}
		}
		started := func() (names []string) {
			for _, e := range r.fake.Journal() {
				if e.Action.Kind == runner.StartContainer {
					names = append(names, e.Key.Name)
				}
			}
			r.fake.ClearJournal()
			return names
		}
		r.update(pods...)
		if n := len(started()); n != len(pods) {
			t.Fatalf("%d run", n)
		}
		parked("all run", len(pods))

		pods = append(pods, testPod("crash", testContainer("c", runtimetest.ScriptFailSoon)))
		r.update(pods...)
		started()
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got := started(); !slices.Equal(got, []string{"crash"}) {
			t.Errorf("after the first exit %v were started", got)
		}
		parked("its back-off runs", len(pods))
		time.Sleep(10 * time.Second) // it ends without any event
		synctest.Wait()
		if got := started(); !slices.Equal(got, []string{"crash"}) {
			t.Errorf("after the back-off %v were started", got)
		}

		probed := testContainer("c", "sleep inf")
		probed.ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		}
		pods[0] = edited(pods[0], func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
			p.Spec.Containers[0] = probed
		})
		pods[1] = edited(pods[1], func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"new"} })
		r.update(pods[:len(pods)-1]...)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := started(); !slices.Contains(got, "p1") || slices.Contains(got, "p2") {
			t.Errorf("after the edit %v were started", got)
		}
		parked("one has a probe, one is gone", len(pods)-2)
	})
}
