package tables

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/podsummary"
)

// podRow returns the row of a pod, with the columns of kubectl.
func podRow(p *corev1.Pod, now time.Time) []any {
	s := podsummary.Of(p)
	ip, gates := "", none
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	if n := len(p.Spec.ReadinessGates); n > 0 {
		met := 0
		for _, g := range p.Spec.ReadinessGates {
			if is(p, g.ConditionType) {
				met++
			}
		}
		gates = fmt.Sprintf("%d/%d", met, n)
	}
	return []any{
		p.Name, s.ReadyText(), s.Status, s.RestartsText(now), created(p, now),
		cmp.Or(ip, none), cmp.Or(p.Spec.NodeName, none), cmp.Or(p.Status.NominatedNodeName, none), gates,
	}
}

// is reports whether a condition of a pod is True.
func is(p *corev1.Pod, condition corev1.PodConditionType) bool {
	at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition })
	return at >= 0 && p.Status.Conditions[at].Status == corev1.ConditionTrue
}
