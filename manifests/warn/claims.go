package warn

import (
	"cmp"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

const (
	mountHint = "remove it: a claim without a volume gets a directory. Or mount it on the host, and use hostPath"
	claimHint = "without it the claim gets a directory. Or mount the volume on the host, and use hostPath in the PersistentVolume"
)

// claim warns of a claim that waits for a PersistentVolume, where spec is at a path of the document.
func (c *checker) claim(o *manifests.Object, at string, spec *corev1.PersistentVolumeClaimSpec) {
	if spec.VolumeName == "" || c.Partial {
		return
	}
	say := func(msg, hint string) {
		e := finding(o.ID(), o.Origin, msg, hint)
		e.Field = at + ".volumeName"
		c.warn(e)
	}
	v := c.objects.PersistentVolume(spec.VolumeName)
	switch {
	case v == nil:
		say(c.thereIsNo("PersistentVolume "+spec.VolumeName)+": pods with the claim wait for it", "add the document, or remove the field: the claim gets a directory then")
	case !manifests.Mountable(v):
		say(fmt.Sprintf("PersistentVolume %s cannot be mounted here, like all those of CSI drivers and clouds: pods with the claim wait", v.Name), "remove the field: "+claimHint)
	}
}

// claims warns of the claims that a StatefulSet makes.
func (c *checker) claims(o *manifests.Object, s *appsv1.StatefulSet) {
	for i := range s.Spec.VolumeClaimTemplates {
		at, spec := fmt.Sprintf("spec.volumeClaimTemplates[%d].spec", i), &s.Spec.VolumeClaimTemplates[i].Spec
		c.claim(o, at, spec)
		c.claimAmounts(o, at, spec)
	}
}

// persistentVolume warns of a volume that cannot be mounted, and of the claim that it names.
func (c *checker) persistentVolume(o *manifests.Object, v *corev1.PersistentVolume) {
	if manifests.Mountable(v) {
		return
	}
	e := finding(o.ID(), o.Origin, "it is never bound to a claim: volumes of CSI drivers and clouds cannot be mounted here", mountHint)
	e.Field = "spec"
	c.warn(e)
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	claim := c.objects.Get(manifests.ObjectID{Kind: "PersistentVolumeClaim", Namespace: cmp.Or(ref.Namespace, corev1.NamespaceDefault), Name: ref.Name})
	if claim == nil {
		return
	}
	if p, ok := claim.Object.(*corev1.PersistentVolumeClaim); ok && p.Spec.VolumeName == "" {
		e := finding(claim.ID(), claim.Origin, fmt.Sprintf("PersistentVolume %s is for this claim (spec.claimRef) and cannot be mounted here: pods with the claim wait", v.Name), "remove the PersistentVolume: "+claimHint)
		e.Field = "spec"
		c.warn(e)
	}
}
