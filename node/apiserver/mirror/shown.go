package mirror

import (
	"maps"
	"slices"

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
	reason := reasonCreating
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
// not known, and refused says why ephemeral containers of it can never be added here, by name.
func BoundLocal(p, there *corev1.Pod, refused map[string]string) Local {
	shown := *AsShown(p)
	if there != nil && there.UID == p.UID {
		p := &shown
		p.Status = *p.Status.DeepCopy()
		neverBack(there, &there.Status, &p.Status)
		withEphemeral(there, &p.Status, refused)
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
	withEphemeral(there, &shown.Status, nil)
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

// DebuggedThere reports whether the status in the server shows that an ephemeral container of a pod was started: it is never started again,
// not even in a new sandbox.
func DebuggedThere(there *corev1.Pod, name string) bool {
	s := ephemeralStatus(&there.Status, name)
	return s != nil && (s.State.Running != nil || s.State.Terminated != nil)
}

func ephemeralStatus(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for i := range s.EphemeralContainerStatuses {
		if c := &s.EphemeralContainerStatuses[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// withEphemeral completes the status of a pod with all its ephemeral containers: also those that have not been added here, or never can be
// (refused has the reasons, by name), and those that ended with an earlier sandbox.
func withEphemeral(there *corev1.Pod, s *corev1.PodStatus, refused map[string]string) {
	var all []corev1.ContainerStatus
	for i := range there.Spec.EphemeralContainers {
		c := &there.Spec.EphemeralContainers[i]
		if here := ephemeralStatus(s, c.Name); here != nil {
			all = append(all, *here)
			continue
		}
		shown := corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reasonCreating}}}
		if why := refused[c.Name]; why != "" {
			shown.State.Waiting = &corev1.ContainerStateWaiting{Reason: ReasonNotSupported, Message: why}
		}
		if DebuggedThere(there, c.Name) {
			shown = *ephemeralStatus(&there.Status, c.Name).DeepCopy()
			if run := shown.State.Running; run != nil && s.StartTime != nil {
				shown.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: ReasonStatusUnknown, Message: "it ended with the sandbox of the pod", StartedAt: run.StartedAt, ContainerID: shown.ContainerID,
				}}
			}
		}
		all = append(all, shown)
	}
	s.EphemeralContainerStatuses = all
}

// reasonCreating is the reason of a container that has not been started, as with a kubelet.
const reasonCreating = "ContainerCreating"

// GateConditions are the conditions that readiness gates of pods look at, by uid.
func GateConditions(pods map[manifests.Key]*corev1.Pod) map[types.UID][]corev1.PodCondition {
	all := map[types.UID][]corev1.PodCondition{}
	for _, p := range pods {
		if given := manifests.GateConditions(p); len(given) > 0 {
			all[p.UID] = given
		}
	}
	return all
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
