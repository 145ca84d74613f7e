package shown

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
)

// Volume returns a volume as bound to a claim, or as available.
func Volume(o *corev1.PersistentVolume, claim string) kinds.Object {
	v := new(*o)
	v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}
	if claim == "" {
		return v
	}
	v.Status.Phase = corev1.VolumeBound
	if v.Spec.ClaimRef == nil {
		namespace, name, _ := strings.Cut(claim, "/")
		v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
	}
	return v
}

// Claim returns a claim as bound, or as pending.
func Claim(o *corev1.PersistentVolumeClaim, volume string, bound bool) kinds.Object {
	c := new(*o)
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	if bound {
		c.Spec.VolumeName = cmp.Or(c.Spec.VolumeName, volume)
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests}
	}
	return c
}

// Class returns a StorageClass in its API type.
func Class(o *manifests.StorageClass) kinds.Object {
	c := &storagev1.StorageClass{
		ObjectMeta: o.ObjectMeta, Provisioner: o.Provisioner, Parameters: o.Parameters, ReclaimPolicy: o.ReclaimPolicy, MountOptions: o.MountOptions,
		AllowVolumeExpansion: o.AllowVolumeExpansion, AllowedTopologies: o.AllowedTopologies,
	}
	mode := storagev1.VolumeBindingImmediate
	if o.VolumeBindingMode != nil {
		mode = storagev1.VolumeBindingMode(*o.VolumeBindingMode)
	}
	c.VolumeBindingMode = &mode
	if c.ReclaimPolicy == nil {
		c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain) // unlike in Kubernetes
	}
	return c
}

// Service returns a Service with a spec, and its defaults.
func Service(o, assigned *corev1.Service) kinds.Object {
	s := new(*o)
	s.Spec, s.Status = assigned.Spec, corev1.ServiceStatus{}
	if assigned != o {
		s.Status.LoadBalancer, s.Status.Conditions = assigned.Status.LoadBalancer, assigned.Status.Conditions
	}
	s.Spec.Type = cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)
	s.Spec.SessionAffinity = cmp.Or(s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	if s.Spec.InternalTrafficPolicy == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName { // addresses have one family here
		if s.Spec.IPFamilyPolicy == nil {
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		}
		if len(s.Spec.IPFamilies) == 0 {
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		}
	}
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	s.Spec.Ports = slices.Clone(s.Spec.Ports)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	return s
}
