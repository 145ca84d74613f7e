package pool_test

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/podstatus"
	"monopod/runner/runtimetest"
)

// The results of a removed pod are reported to the end: an API server has no other way to learn them.
func TestLastStatusOfRemovedPodHasContainerResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var gone []podstatus.Status
		r.cfg.Gone = func(s podstatus.Status) { gone = append(gone, s) }
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
		pod.Object.UID, pod.Object.Spec.NodeName = "u1", "node"
		r.update(pod)
		r.update()
		if len(gone) != 1 {
			t.Fatalf("%d pods are gone", len(gone))
		}
		p := gone[0].Pod
		if p.UID != "u1" || len(p.Spec.Containers) != 2 || p.DeletionTimestamp == nil || p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			t.Errorf("it was %+v", p)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated == nil || c.ContainerID == "" || c.Ready {
				t.Errorf("%+v", c)
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionFalse {
				t.Errorf("%+v", c)
			}
		}
	})
}

// A pod that is created again after a removal shows nothing of the previous one.
func TestPodCreatedAgainHasNewStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		r.pool.Update(model.Desired{Reported: everySource()})
		r.pool.Update(model.Desired{Pods: []*manifests.Pod{pod}, Reported: everySource()})
		r.settle()
		r.update()
		r.update(pod)
		if p := r.status("web").Pod; p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("%+v", p)
		}
	})
}

func TestReadinessGatesFollowExternalConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		pod.Object.UID = "u1"
		pod.Object.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a/one"}, {ConditionType: "a/two"}}
		r.update(pod)
		since := metav1.Now()
		given := func(one, two corev1.ConditionStatus) {
			var all []corev1.PodCondition
			for kind, status := range map[corev1.PodConditionType]corev1.ConditionStatus{"a/one": one, "a/two": two} {
				if status != "" {
					all = append(all, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: since})
				}
			}
			r.pool.Conditions(map[string][]corev1.PodCondition{"u1": all, "other": {{Type: "a/two", Status: corev1.ConditionTrue}}})
			r.settle()
		}
		ready := func() corev1.PodCondition {
			for _, c := range r.status("web").Pod.Status.Conditions {
				if c.Type == corev1.PodReady {
					return c
				}
			}
			t.Fatal("it is not there")
			return corev1.PodCondition{}
		}
		for _, step := range []struct {
			one, two, want corev1.ConditionStatus
			message        string
		}{
			{"", "", corev1.ConditionFalse, `corresponding condition of pod readiness gate "a/one" does not exist., corresponding condition of pod readiness gate "a/two" does not exist.`},
			{corev1.ConditionTrue, "", corev1.ConditionFalse, `corresponding condition of pod readiness gate "a/two" does not exist.`},
			{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionFalse, `the status of pod readiness gate "a/two" is not "True", but False`},
			{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionTrue, ""},
			{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionFalse, `the status of pod readiness gate "a/one" is not "True", but False`},
		} {
			given(step.one, step.two)
			if got := ready(); got.Status != step.want || got.Message != step.message {
				t.Errorf("with %q and %q it is %+v", step.one, step.two, got)
			}
		}
		r.pool.Conditions(nil)
		r.settle()
		if got := ready(); got.Status != corev1.ConditionFalse {
			t.Errorf("without them it is %+v", got)
		}
	})
}
