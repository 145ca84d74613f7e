package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

func withDeadline(p *manifests.Pod, seconds int64) *manifests.Pod {
	return edited(p, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(seconds) })
}

// TestDeadlineIgnoresWallClock sets the wall clock, which must not change the deadline.
func TestDeadlineIgnoresWallClock(t *testing.T) {
	pod := withDeadline(testPod("web", testContainer("a", "")), 100)
	i := running("1", "a", 1)
	i.Hash = podhash.Container(pod.Object, "a")
	for _, tt := range []struct {
		created, age time.Duration
		fails        bool
	}{
		{-time.Hour, 99 * time.Second, false},
		{time.Hour, 99 * time.Second, false},
		{-time.Second, 100 * time.Second, true},
		{time.Hour, 101 * time.Second, true},
	} {
		sb := &runner.Sandbox{
			ID: "s", Hash: podhash.Sandbox(pod.Object), Pod: pod, Alive: true, Network: runner.NetworkReady,
			CreatedAt: at(100).Add(tt.created), Age: tt.age,
		}
		actions, next := plan.Plan(at(100), pod, plan.Observed{PodState: runner.PodState{Sandbox: sb, Containers: []runner.Container{i}}})
		if fails := len(actions) > 0 && actions[0].Kind == runner.FailPod; fails != tt.fails || !fails && !next.Equal(at(101)) {
			t.Errorf("made %s ago, %s old: %v, next %s", -tt.created, tt.age, actions, next)
		}
	}
}

func TestDeadlineFailsThePodBeforeItStopsContainers(t *testing.T) {
	pod := withDeadline(testPod("x", testContainer("a", runtimetest.ScriptServe)), 60)
	const ends = "StopContainer a (pod has failed)"
	for _, c := range []struct {
		name     string
		recorded *manifests.Pod
		change   func(*plan.Observed)
		want     string
	}{
		{"as recorded", pod, nil, "[FailPod (activeDeadlineSeconds exceeded) " + ends + "]"},
		{"an edit shortened it", withDeadline(pod, 1000), nil, "[RecordPod (manifest changed) FailPod (activeDeadlineSeconds exceeded) " + ends + "]"},
		{"an edit that cannot be recorded now", withDeadline(pod, 1000), func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"": {Reason: runner.ReasonCreatePodSandboxError, Count: 5, At: zero}}
		}, "[]"},
		{"the manifest is only kept", withDeadline(pod, 1000), func(o *plan.Observed) { o.Kept = true }, "[FailPod (activeDeadlineSeconds exceeded) " + ends + "]"},
		{"it has completed", pod, func(o *plan.Observed) {
			done := exited("id-a", "a", 0, 50)
			done.Hash, done.SandboxID, done.Recorded = o.Containers[0].Hash, "s1", true
			o.Containers[0] = done
			pod.Object.Spec.RestartPolicy = corev1.RestartPolicyNever
		}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(pod)
			o.Sandbox.Pod, o.Sandbox.Age = c.recorded, time.Minute
			if c.change != nil {
				c.change(&o)
			}
			wantPlan(t, pod, o, c.want)
		})
	}
}

// failedPod returns a pod that has failed for a reason and whose container has been stopped.
func failedPod(pod *manifests.Pod, reason string) plan.Observed {
	o := runs(pod)
	o.Sandbox.Failed = &runner.PodFailure{Reason: reason, At: zero}
	o.Sandbox.CreatedAt = zero.Add(-time.Minute)
	for i := range o.Containers {
		c := &o.Containers[i]
		*c = with(exited(c.ID, c.Name, 137, 0), func(e *runner.Container) {
			e.Hash, e.SandboxID, e.Recorded, e.StopSentAt = c.Hash, c.SandboxID, true, zero
		})
	}
	return o
}

func TestFailedPodRunsAgainOnlyWithAnotherDefinition(t *testing.T) {
	pod := withDeadline(testPod("x", testContainer("a", runtimetest.ScriptServe)), 60)
	const rebuilt = "[RemoveContainer a (definition of a failed pod changed) RemoveSandbox (definition of a failed pod changed) " +
		"CreateSandbox (definition of a failed pod changed) EnsureImage a CreateContainer a (first start) StartContainer a (first start)]"
	for _, c := range []struct {
		name    string
		desired *manifests.Pod
		want    string
	}{
		{"nothing changed", pod, "[]"},
		{"a label", edited(pod, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), "[RecordPod (manifest changed)]"},
		{"the deadline", withDeadline(pod, 90), rebuilt},
		{"no deadline", edited(pod, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }), rebuilt},
		{"the container", edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }), rebuilt},
		{
			"one container less", edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "b" }),
			"[RemoveContainer a (definition of a failed pod changed) RemoveSandbox (definition of a failed pod changed) " +
				"CreateSandbox (definition of a failed pod changed) EnsureImage b CreateContainer b (first start) StartContainer b (first start)]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantPlan(t, c.desired, failedPod(pod, runner.ReasonDeadlineExceeded), c.want)
		})
	}
}
