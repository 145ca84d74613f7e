package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAPodIsReadyByItsCondition(t *testing.T) {
	for name, test := range map[string]struct {
		conditions []corev1.PodCondition
		want       bool
	}{
		"no conditions": {},
		"ready":         {[]corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}, true},
		"not ready":     {[]corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}, false},
		"unknown":       {[]corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionUnknown}}, false},
		"another":       {[]corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}, false},
	} {
		if got := IsReady(&corev1.Pod{Status: corev1.PodStatus{Conditions: test.conditions}}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestConditionsOfGatesAreInTheirOrder(t *testing.T) {
	pod := &corev1.Pod{}
	for _, gate := range []corev1.PodConditionType{"b", "absent", "a"} {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "a", Status: corev1.ConditionTrue}, {Type: "other"}, {Type: "b", Reason: "Why"}}
	got := GateConditions(pod)
	if len(got) != 2 || got[0].Type != "b" || got[0].Reason != "Why" || got[1].Type != "a" || got[1].Status != corev1.ConditionTrue {
		t.Errorf("%+v", got)
	}
	if got := GateConditions(&corev1.Pod{Status: pod.Status}); got != nil {
		t.Errorf("without gates: %+v", got)
	}
}
