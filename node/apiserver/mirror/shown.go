package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// plainReasons are reasons to wait for which a kubelet says only that the container is being created; events say the rest.
var plainReasons = []string{"FailedMount", "CreatePodSandboxError"} //nolint:gochecknoglobals // a table

// AsShown returns a pod with its status as an API server gets it: in the words of a kubelet.
func AsShown(p *corev1.Pod) *corev1.Pod {
	all := [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses}
	unusual := func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains(plainReasons, c.State.Waiting.Reason)
	}
	if !slices.ContainsFunc(all[0], unusual) && !slices.ContainsFunc(all[1], unusual) {
		return p
	}
	shown := *p
	p.Status.DeepCopyInto(&shown.Status)
	reason := "ContainerCreating"
	if len(p.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	for _, all := range [][]corev1.ContainerStatus{shown.Status.InitContainerStatuses, shown.Status.ContainerStatuses} {
		for i := range all {
			if unusual(all[i]) {
				all[i].State.Waiting.Reason = reason
			}
		}
	}
	return &shown
}

// BoundLocal returns a pod that the server has bound to this machine, as the server gets it. there is the pod on the server, nil if it is
// not known.
func BoundLocal(p, there *corev1.Pod) Local {
	shown := *AsShown(p)
	if there != nil && there.UID == p.UID {
		p := &shown
		p.Status = *p.Status.DeepCopy()
		neverBack(there, &there.Status, &p.Status)
		withoutEphemeral(there, &p.Status)
		observe(&p.Status, observedGeneration(shown.DeletionTimestamp != nil, shown.Generation, there))
	}
	return Local{Pod: &shown, Digest: Digest(&shown.Status)}
}

// LastLocal returns a pod that the server wants deleted and that no longer exists here, with its last state; last is nil when that is not
// known.
func LastLocal(there, last *corev1.Pod) Local {
	shown := *there
	status := &there.Status
	if last != nil && (Finished(&last.Status) || !Finished(&there.Status)) {
		status = &AsShown(last).Status
	}
	shown.Status = finalStatus(there, status)
	neverBack(there, &there.Status, &shown.Status)
	withoutEphemeral(there, &shown.Status)
	observe(&shown.Status, there.Generation)
	return Local{Pod: &shown, Digest: Digest(&shown.Status)}
}

// observedGeneration is that of the spec that is acted on: the one that was handed over, or with a deletion the one that it made.
func observedGeneration(leaving bool, handed int64, there *corev1.Pod) int64 {
	if leaving && there.DeletionTimestamp != nil {
		return there.Generation
	}
	return handed
}

// observe notes the generation that a status is about.
func observe(s *corev1.PodStatus, generation int64) {
	s.ObservedGeneration = generation
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = generation
	}
}

// ConditionEphemeral reports that ephemeral containers do not run.
const ConditionEphemeral corev1.PodConditionType = "monopod.dev/EphemeralContainers"

// EphemeralMessage says which ephemeral containers of a pod do not run; empty: it has none.
func EphemeralMessage(p *corev1.Pod) string {
	if len(p.Spec.EphemeralContainers) == 0 {
		return ""
	}
	var names []string
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	return fmt.Sprintf("monopod does not support ephemeral containers yet: %s; use `kubectl exec`", strings.Join(names, ", "))
}

// withoutEphemeral has the status of a pod say that its ephemeral containers do not run.
func withoutEphemeral(there *corev1.Pod, s *corev1.PodStatus) {
	message := EphemeralMessage(there)
	if message == "" {
		return
	}
	s.EphemeralContainerStatuses = nil
	for i := range there.Spec.EphemeralContainers {
		c := &there.Spec.EphemeralContainers[i]
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: ReasonNotSupported, Message: message}},
		})
	}
	condition := corev1.PodCondition{Type: ConditionEphemeral, Status: corev1.ConditionFalse, Reason: ReasonNotSupported, Message: message, LastTransitionTime: there.CreationTimestamp}
	s.Conditions = append(slices.Clone(s.Conditions), condition)
}

// GateConditions are the conditions that readiness gates of pods look at, by uid.
func GateConditions(pods map[manifests.Key]*corev1.Pod) map[types.UID][]corev1.PodCondition {
	all := map[types.UID][]corev1.PodCondition{}
	for _, p := range pods {
		if given := GatesOf(p); len(given) > 0 {
			all[p.UID] = given
		}
	}
	return all
}

// GatesOf returns the conditions that the readiness gates of a pod look at.
func GatesOf(p *corev1.Pod) (given []corev1.PodCondition) {
	for _, g := range p.Spec.ReadinessGates {
		at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == g.ConditionType })
		if at >= 0 {
			given = append(given, p.Status.Conditions[at])
		}
	}
	return given
}

// SameGates reports whether nothing has changed.
func SameGates(a, b map[types.UID][]corev1.PodCondition) bool {
	return maps.EqualFunc(a, b, slices.Equal)
}

// Reasons of pods that are bound to this node and do not run here.
const (
	// ReasonNotSupported is of pods that this machine can never run as they are written.
	ReasonNotSupported = "NotSupported"
	// ReasonNameTaken is of pods that wait because a manifest of this machine has one of their name.
	ReasonNameTaken = "NameTaken"
	// ReasonPodOS and ReasonPodOSLabel are a kubelet's for pods of another operating system, ReasonSysctl for those with sysctls that it
	// does not allow.
	ReasonPodOS      = "PodOSNotSupported"
	ReasonPodOSLabel = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonSysctl     = "SysctlForbidden"
	// ReasonNodeAffinity is of pods that ask for another machine: one of another architecture, for instance.
	ReasonNodeAffinity = "NodeAffinity"
	// ReasonNodePorts is a kubelet's for pods whose host ports are taken.
	ReasonNodePorts = "NodePorts"
)

// LocalOf is a pod of a source of this machine, as its mirror shows it.
func LocalOf(p *corev1.Pod, nodeName string) Local {
	of := p
	p = AsShown(p)
	l := Local{Pod: p, Of: of, Digest: Digest(&p.Status)}
	shown, err := For(p, nodeName)
	if err != nil {
		l.Refused = err
		return l
	}
	l.Hash = shown.Annotations[AnnotationContent]
	return l
}
