package warn

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
)

const (
	// leastMemory is less than any container needs to start: a number below it lacks its unit.
	leastMemory = 64 << 10
	// mostCPU is more processors than any machine has.
	mostCPU = 100_000
)

// quantities warns of amounts of a unit that are valid and cannot be meant: of their suffixes, m is a thousandth, and M a million.
func (c *checker) quantities(u *unit) {
	lists := func(path string, r *corev1.ResourceRequirements) {
		c.amounts(u, path+".limits", r.Limits)
		requests := maps.Clone(r.Requests)
		maps.DeleteFunc(requests, func(name corev1.ResourceName, q resource.Quantity) bool { // the default is the limit
			limit, ok := r.Limits[name]
			return ok && limit.Cmp(q) == 0
		})
		c.amounts(u, path+".requests", requests)
	}
	u.containers(func(path string, k *corev1.Container) { lists(path+".resources", &k.Resources) })
	if u.spec.Resources != nil {
		lists("spec.resources", u.spec.Resources)
	}
	for i := range u.spec.Volumes {
		v, path := &u.spec.Volumes[i], fmt.Sprintf("spec.volumes[%d]", i)
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil {
			if msg, hint := fraction(*v.EmptyDir.SizeLimit); msg != "" {
				c.warn(u.about(path+".emptyDir.sizeLimit", msg, hint))
			}
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			c.amounts(u, path+".ephemeral.volumeClaimTemplate.spec.resources.requests", v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests)
		}
	}
}

func (c *checker) amounts(u *unit, path string, list corev1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if msg, hint := improbable(name, list[name]); msg != "" {
			c.warn(u.about(path+"."+string(name), msg, hint))
		}
	}
}

// claimAmounts warns of the size of a claim, where spec is at a path of the document.
func (c *checker) claimAmounts(o *manifests.Object, at string, spec *corev1.PersistentVolumeClaimSpec) {
	if msg, hint := fraction(spec.Resources.Requests[corev1.ResourceStorage]); msg != "" {
		e := finding(o.ID(), o.Origin, msg, hint)
		e.Field = at + ".resources.requests.storage"
		c.warn(e)
	}
}

// improbable returns why an amount of a resource cannot be meant; empty if it can.
func improbable(name corev1.ResourceName, q resource.Quantity) (msg, hint string) {
	switch {
	case name == corev1.ResourceCPU && q.Value() >= mostCPU:
		text := q.String()
		return text + " are more processors than a machine has", "write " + strings.TrimRight(text, "kMGTPE") + "m for thousandths of a processor"
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || name == corev1.ResourceStorage:
		if msg, hint := fraction(q); msg != "" {
			return msg, hint
		}
		if text := q.String(); name == corev1.ResourceMemory && q.Sign() > 0 && q.Value() < leastMemory {
			return fmt.Sprintf("%s is %d bytes, too few for a container to start", text, q.Value()), "write " + strings.TrimRight(text, "ki") + "Mi"
		}
	}
	return "", ""
}

// fraction returns why a number of bytes is none; empty if it is one.
func fraction(q resource.Quantity) (msg, hint string) {
	text := q.String()
	if number, milli := strings.CutSuffix(text, "m"); milli {
		return text + " is not a whole number of bytes: m stands for a thousandth", "write " + number + "Mi for MiB, or " + number + "M for MB"
	}
	return "", ""
}
