package warn

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// affinity warns of pods that a cluster would keep on different nodes, and of those that would wait for others: here all run on one.
func (c *checker) affinity(u *unit) {
	c.domains(u)
	a := u.spec.Affinity
	if a == nil {
		return
	}
	if a.PodAntiAffinity != nil && slices.ContainsFunc(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t corev1.PodAffinityTerm) bool {
		return u.copies > 1 && u.matches(u, &t) || slices.ContainsFunc(c.units, func(o *unit) bool { return o != u && u.matches(o, &t) })
	}) {
		c.warn(u.about("spec.affinity.podAntiAffinity", "pods that it keeps apart run on this machine together", "remove it, or do not run them on one machine"))
	}
	if a.PodAffinity != nil && !c.Partial && slices.ContainsFunc(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t corev1.PodAffinityTerm) bool {
		return !slices.ContainsFunc(c.units, func(o *unit) bool { return u.matches(o, &t) })
	}) {
		c.warn(u.about("spec.affinity.podAffinity", "it starts without the pod that it requires", "add that pod, or remove the field"))
	}
}

// domains warns of pods that a cluster with a single domain would keep waiting for others.
func (c *checker) domains(u *unit) {
	for i := range u.spec.TopologySpreadConstraints {
		t := &u.spec.TopologySpreadConstraints[i]
		if n := t.MinDomains; n != nil && *n > 1 && t.WhenUnsatisfiable == corev1.DoNotSchedule && u.copies > int(t.MaxSkew) {
			c.warn(u.about(fmt.Sprintf("spec.topologySpreadConstraints[%d].minDomains", i), "all its pods run on this machine, which is a single domain", "remove it"))
		}
	}
}

// matches reports whether a term of the affinity of u means the pods of another unit. Namespaces that are chosen by their labels have none here.
func (u *unit) matches(o *unit, t *corev1.PodAffinityTerm) bool {
	namespaces := t.Namespaces
	if len(namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces = []string{u.id.Namespace}
	}
	everywhere := t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels)+len(t.NamespaceSelector.MatchExpressions) == 0
	if !everywhere && !slices.Contains(namespaces, o.id.Namespace) {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	return err == nil && s.Matches(labels.Set(o.labels))
}
