package strategy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/strategy"
)

// TestUpdatesOfPodsAreThoseOfKubernetes follows ValidatePodUpdate.
func TestUpdatesOfPodsAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	const other = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
		"`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative); changed: "
	k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	toleration := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1))}
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "i:1"}}, Containers: []corev1.Container{{Name: "c", Image: "c:1"}, {Name: "d", Image: "d:1"}},
		ActiveDeadlineSeconds: new(int64(100)), TerminationGracePeriodSeconds: new(int64(30)), Tolerations: []corev1.Toleration{toleration},
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "x"}},
	}}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		text string
	}{
		"nothing": {func(*corev1.Pod) {}, ""},
		"metadata": {func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		}, ""},
		"images":         {func(p *corev1.Pod) { p.Spec.Containers[1].Image, p.Spec.InitContainers[0].Image = "d:2", "i:2" }, ""},
		"less time":      {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(99)) }, ""},
		"more time":      {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(101)) }, "spec.activeDeadlineSeconds: Invalid value: 101: must be less than or equal to previous value"},
		"negative time":  {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(-1)) }, "must be between 0 and 2147483647, inclusive"},
		"unlimited time": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, "must not update from a positive integer to nil value"},
		"a toleration more": {func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "b", Operator: corev1.TolerationOpExists})
		}, ""},
		"other seconds":     {func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil }, ""},
		"other toleration":  {func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "b" }, "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
		"no toleration":     {func(p *corev1.Pod) { p.Spec.Tolerations = nil }, "existing toleration can not be modified"},
		"a gate less":       {func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, ""},
		"a gate more":       {func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "y"}} }, "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'y'"},
		"a container more":  {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "e"}) }, "spec.containers: Forbidden: pod updates may not add or remove containers"},
		"an init less":      {func(p *corev1.Pod) { p.Spec.InitContainers = nil }, "spec.initContainers: Forbidden: pod updates may not add or remove containers"},
		"another order":     {func(p *corev1.Pod) { c := p.Spec.Containers; c[0], c[1] = c[1], c[0] }, other + "spec.containers[0].name, spec.containers[1].name"},
		"environment":       {func(p *corev1.Pod) { p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "secret"}} }, other + "spec.containers[1].env"},
		"grace and network": {func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.TerminationGracePeriodSeconds = true, new(int64(1)) }, other + "spec.terminationGracePeriodSeconds, spec.hostNetwork"},
		"init resources":    {func(p *corev1.Pod) { p.Spec.InitContainers[0].Command = []string{"x"} }, other + "spec.initContainers[0].command"},
	} {
		now := old.DeepCopy()
		c.edit(now)
		strategy.Default(k, now)
		err := strategy.PodUpdate(k, old, now)
		if c.text == "" && err != nil || c.text != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s: %v, want %s", name, err, c.text)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: values are shown: %v", name, err)
		}
	}
	negative := old.DeepCopy()
	negative.Spec.TerminationGracePeriodSeconds = new(int64(-1))
	now := old.DeepCopy()
	now.Spec.TerminationGracePeriodSeconds = new(int64(1))
	strategy.Default(k, now)
	if err := strategy.PodUpdate(k, negative, now); err != nil {
		t.Errorf("from a negative grace period: %v", err)
	}
	if err := strategy.PodUpdate(kinds.ByKind(corev1.SchemeGroupVersion.WithKind("ConfigMap")), &corev1.ConfigMap{}, &corev1.ConfigMap{Data: map[string]string{"a": "b"}}); err != nil {
		t.Errorf("not a pod: %v", err)
	}
}
