// Package mirror decides what an API server is shown of the pods of this machine: mirror pods of local ones, the status of bound ones.
//
// It is pure: no requests, no clock. What the server answers must not change what runs.
package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// Annotations of mirror pods besides those that a kubelet sets.
const (
	// AnnotationContent is a hash of what the mirror was made from: when it changes, the mirror is recreated.
	AnnotationContent = "monopod.dev/mirror-content"
	// AnnotationOmitted lists what the pod refers to and its mirror does not, because an API server lets no mirror pod do so.
	AnnotationOmitted = "monopod.dev/mirror-omits"

	// AnnotationHash is of what the mirror shows, but of its status: those who have edited a manifest wait for another one, as kubeadm does.
	AnnotationHash = "kubernetes.io/config.hash"
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationSource names the source of a pod of this machine.
	AnnotationSource = "kubernetes.io/config.source"
)

// SourceName is the name of the source whose pods Bound tells.
const SourceName = manifests.SourceAPIServer

// MaxName is the longest name of a pod.
const MaxName = 253

// Name is the name of the mirror of a pod, as a kubelet names its static pods.
func Name(name, nodeName string) string { return name + "-" + strings.ToLower(nodeName) }

// LocalName is the name of the pod that has a mirror of that name. ok is false when no pod has.
func LocalName(mirror, nodeName string) (name string, ok bool) {
	name, ok = strings.CutSuffix(mirror, "-"+strings.ToLower(nodeName))
	return name, ok && name != ""
}

// For returns the mirror of a pod, without owner. Its status is that of the pod.
func For(pod *corev1.Pod, nodeName string) (*corev1.Pod, error) {
	m := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	pod.Spec.DeepCopyInto(&m.Spec)
	m.Name, m.Namespace, m.Labels = Name(pod.Name, nodeName), pod.Namespace, maps.Clone(pod.Labels)
	if len(m.Name) > MaxName {
		return nil, fmt.Errorf("%s is longer than the %d characters that a name may have", m.Name, MaxName)
	}
	if pod.UID == "" {
		return nil, errors.New("it has no uid yet")
	}
	m.Spec.NodeName = nodeName
	omitted := omit(&m.Spec)
	m.Annotations = maps.Clone(pod.Annotations)
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	delete(m.Annotations, AnnotationSeen)
	delete(m.Annotations, AnnotationHash)
	m.Annotations[corev1.MirrorPodAnnotationKey] = string(pod.UID) // by it clients find the events
	if len(omitted) > 0 {
		m.Annotations[AnnotationOmitted] = strings.Join(omitted, ", ")
	}
	m.Annotations[AnnotationHash] = hashOf(m)
	m.Annotations[AnnotationContent] = m.Annotations[AnnotationHash]
	return m, nil
}

// Owned makes the mirror belong to the Node: it goes with it.
func Owned(m *corev1.Pod, nodeName string, uid types.UID) *corev1.Pod {
	yes := true
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: uid, Controller: &yes}}
	return m
}

// omit removes the fields that an API server does not accept in a mirror pod, or would set itself, and returns their names.
func omit(s *corev1.PodSpec) []string {
	o := omission{}
	o.note("serviceaccount", s.ServiceAccountName)
	s.ServiceAccountName, s.DeprecatedServiceAccount = "", ""
	for _, r := range s.ImagePullSecrets {
		o.note("secret", r.Name)
	}
	s.ImagePullSecrets = nil
	for _, r := range s.ResourceClaims {
		o.note("resourceclaim", r.Name)
	}
	s.ResourceClaims = nil
	if s.RuntimeClassName != nil {
		o.note("runtimeclass", *s.RuntimeClassName)
	}
	s.RuntimeClassName, s.Overhead = nil, nil
	if !strings.HasPrefix(s.PriorityClassName, "system-") { // those are everywhere
		o.note("priorityclass", s.PriorityClassName)
		s.PriorityClassName = ""
	}
	s.Priority, s.PreemptionPolicy, s.SchedulingGates, s.EphemeralContainers = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			o.container(&containers[i])
		}
	}
	for i := range s.Volumes {
		o.volume(&s.Volumes[i])
	}
	return o.list()
}

// omission collects what is taken out.
type omission map[string]bool

func (o omission) note(kind, name string) {
	if name != "" {
		o[kind+" "+name] = true
	}
}

func (o omission) list() []string {
	out := slices.Collect(maps.Keys(o))
	sort.Strings(out)
	return out
}

func (o omission) container(c *corev1.Container) {
	c.Resources.Claims = nil
	c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool {
		if e.ConfigMapRef != nil {
			o.note("configmap", e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			o.note("secret", e.SecretRef.Name)
		}
		return e.ConfigMapRef != nil || e.SecretRef != nil
	})
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool {
		if e.ValueFrom == nil {
			return false
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			o.note("configmap", r.Name)
			return true
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			o.note("secret", r.Name)
			return true
		}
		return false
	})
}

// volume replaces one that needs objects by an empty one: containers mount it.
func (o omission) volume(v *corev1.Volume) {
	empty := func(kind, name string) {
		o.note(kind, name)
		v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	switch {
	case v.ConfigMap != nil:
		empty("configmap", v.ConfigMap.Name)
	case v.Secret != nil:
		empty("secret", v.Secret.SecretName)
	case v.PersistentVolumeClaim != nil:
		empty("persistentvolumeclaim", v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		empty("volume", v.Name)
	case v.Projected != nil:
		o.projected(v.Projected)
		if len(v.Projected.Sources) == 0 {
			empty("", "")
		}
	case v.EmptyDir != nil, v.HostPath != nil, v.DownwardAPI != nil, v.Image != nil, v.NFS != nil:
	case v.ISCSI != nil && v.ISCSI.SecretRef == nil, v.FC != nil:
	default: // drivers, and volumes with secrets
		empty("volume", v.Name)
	}
}

func (o omission) projected(p *corev1.ProjectedVolumeSource) {
	p.Sources = slices.DeleteFunc(p.Sources, func(s corev1.VolumeProjection) bool {
		switch {
		case s.ConfigMap != nil:
			o.note("configmap", s.ConfigMap.Name)
		case s.Secret != nil:
			o.note("secret", s.Secret.Name)
		case s.ServiceAccountToken != nil:
			o.note("serviceaccount", "token")
		}
		return s.DownwardAPI == nil
	})
}
