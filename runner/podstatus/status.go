// Package podstatus derives the status of a pod as Kubernetes shows it, with its first problem, from the observed state.
//
// It is pure and keeps no state, so a restarted agent derives the same status. It must not decide what to do about a problem.
package podstatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
)

// Input is all that the status of a pod depends on. Transition times are derived from those of the sandbox and the containers, so they stay
// the same after a restart of the agent.
type Input struct {
	Now time.Time
	Key manifests.Key
	// Desired is the manifest; nil if the pod is not desired or is only kept.
	Desired *manifests.Pod
	// Last is the manifest shown before, for a pod that is removed and has no record, or no longer has one. It may be nil.
	Last *manifests.Pod
	plan.Observed
	// Held is set if the desired manifest may not be applied now.
	Held *runner.Held
	// Blind is set if the pod could not be observed; Observed is then the previous observation.
	Blind error
	// Removing is set while the pod is being removed.
	Removing bool
	// Since is when this agent first knew of the pod: the age of one that has no sandbox yet.
	Since time.Time
	// Next is when the worker acts again by itself.
	Next time.Time
	Node Node
	// Given are the conditions set by others, such as controllers of an API server.
	Given []corev1.PodCondition
}

// Node is the node in the status of a pod.
type Node struct {
	Name string
	// IPs are the node's addresses, IPv4 first.
	IPs []string
}

// Annotations that the kubelet sets on pods from files and URLs; tools recognize static pods by them.
const (
	annotationSource = "kubernetes.io/config.source"
	annotationHash   = "kubernetes.io/config.hash"
	annotationSeen   = "kubernetes.io/config.seen"
	annotationMirror = "kubernetes.io/config.mirror"
)

// ReasonReadinessGatesNotReady is the reason of a pod that is not Ready although its containers are.
const ReasonReadinessGatesNotReady = "ReadinessGatesNotReady"

// ReasonRuntimeUnreachable is the reason of conditions while the pod cannot be observed.
const ReasonRuntimeUnreachable = "RuntimeUnreachable"

// Of returns the status of a pod.
func Of(in Input) Status {
	shown := in.manifest()
	s := statusBuilder{Input: in, pod: toShow(shown.Object), all: in.Containers}
	s.pod.Spec.EphemeralContainers = in.Sandbox.EphemeralOf(&s.pod.Spec)
	s.debug, s.Containers = runner.SplitEphemeral(in.Containers, s.pod.Spec.EphemeralContainers)
	s.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	s.identity(shown.Origin)
	s.overhead(shown)
	s.priority(shown)
	s.addresses()
	s.containers()
	s.pod.Status.Phase = s.phase()
	resourcesOf(&s).resources()
	s.observed()
	s.pod.Status.QOSClass = manifests.QOSClass(s.pod)
	s.pod.Status.Conditions = s.conditions()
	for i := range s.pod.Status.Conditions {
		s.pod.Status.Conditions[i].ObservedGeneration = s.pod.Status.ObservedGeneration
	}
	if f := s.failure(); f != nil {
		s.pod.Status.Reason, s.pod.Status.Message = f.Reason, FailureMessage(f)
	}
	if s.halted() && !in.Halt.Deleted {
		s.pod.Status.Reason, s.pod.Status.Message = in.Halt.Reason, in.Halt.Message
	}
	if in.Held != nil && in.Sandbox == nil {
		s.pod.Status.Reason, s.pod.Status.Message = in.Held.Reason, in.Held.Message
	}
	status := Status{Pod: s.pod, Desired: in.Desired, Origin: shown.Origin, Trouble: troublesOf(&s).trouble(), NextTry: in.Next, halt: in.Halt, notAdmitted: s.notAdmitted(), Running: s.stopping(), exists: in.Sandbox != nil || len(in.Containers) > 0, Images: imagesOf(&s.pod.Spec, s.Containers), EndedBy: s.endedBy(), StoppedFor: s.stoppedFor(), Failing: failing(s.Failures), Refused: refused(&s.pod.Spec, s.Containers)}
	status.Why, status.More = status.Trouble.Text, troublesOf(&s).more(status.Trouble)
	if in.Sandbox != nil {
		status.Recorded = in.Sandbox.Pod
	}
	return status
}

// notAdmitted returns why no part of the pod may start; nil if a part has started or the pod only waits.
func (s *statusBuilder) notAdmitted() *runner.Held {
	if s.Held == nil || !s.Held.Final || s.Sandbox != nil || s.Place != nil || len(s.Containers) > 0 {
		return nil
	}
	return s.Held
}

// toShow returns a shallow copy of a pod. Statuses are created often and kept, and only set fields of the copy and, in cloned maps,
// annotations. Status and creation time of the manifest, which may be a dump of a cluster, are not copied: both are observed.
func toShow(pod *corev1.Pod) *corev1.Pod {
	shown := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	shown.SelfLink = "" //nolint:staticcheck // dumps of old clusters have it
	shown.ResourceVersion, shown.CreationTimestamp, shown.ManagedFields = "", metav1.Time{}, nil
	shown.Annotations = maps.Clone(pod.Annotations)
	delete(shown.Annotations, annotationSeen)
	delete(shown.Annotations, annotationMirror)
	return shown
}

// overhead sets the overhead of the RuntimeClass, as the admission plug-in of an API server does.
func (s *statusBuilder) overhead(shown *manifests.Pod) {
	if class, err := manifests.RuntimeOf(shown); err == nil && len(s.pod.Spec.Overhead) == 0 {
		s.pod.Spec.Overhead = class.Overhead
	}
}

// priority sets the priority of the class, as the admission plug-in of an API server does.
func (s *statusBuilder) priority(shown *manifests.Pod) {
	p := manifests.PriorityOf(shown)
	if !p.Explicit || s.pod.Spec.Priority != nil {
		return
	}
	s.pod.Spec.Priority, s.pod.Spec.PriorityClassName = &p.Value, p.Class
	if !p.Preempts {
		s.pod.Spec.PreemptionPolicy = new(corev1.PreemptNever)
	}
}

// observed sets observedGeneration to that of the recorded manifest. Only manifests from an API server have a generation.
func (s *statusBuilder) observed() {
	if s.Sandbox == nil || s.Sandbox.Pod == nil {
		return
	}
	g := s.Sandbox.Pod.Object.Generation
	s.pod.Status.ObservedGeneration = g
}

// manifest returns the manifest to show: the desired one, else the recorded one, else only the name.
func (in *Input) manifest() *manifests.Pod {
	switch {
	case in.Desired != nil:
		return in.Desired
	case in.Sandbox != nil && in.Sandbox.Pod != nil:
		return in.Sandbox.Pod
	case in.Removing && in.Last != nil:
		return in.Last
	}
	return &manifests.Pod{Object: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Key.Namespace, Name: in.Key.Name},
	}}
}

type statusBuilder struct {
	Input
	pod *corev1.Pod
	// round is the current round of the pod; see plan/round.go.
	round int
	// waitsFor are the init containers that the regular ones wait for.
	waitsFor []string
	// all are all instances, debug those of ephemeral containers, and Input.Containers all others.
	all, debug []runner.Container
}

func (s *statusBuilder) containers() {
	st := &s.pod.Status
	s.round = plan.RoundOf(&s.pod.Spec, &s.PodState)
	s.waitsFor = containersOf(s).uninitialized()
	for i := range s.pod.Spec.InitContainers {
		st.InitContainerStatuses = append(st.InitContainerStatuses, containersOf(s).initContainer(&s.pod.Spec.InitContainers[i]))
	}
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		st.ContainerStatuses = append(st.ContainerStatuses, containersOf(s).container(c, shownInstance(s.Containers, c.Name)))
	}
	for i := range s.pod.Spec.EphemeralContainers {
		st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, containersOf(s).ephemeral(&s.pod.Spec.EphemeralContainers[i]))
	}
}

func (s *statusBuilder) identity(o manifests.Origin) {
	uid := s.NewUID
	if s.pod.UID != "" {
		uid = string(s.pod.UID)
	}
	s.pod.Annotations = withAnnotation(s.pod.Annotations, annotationSource, o.Source)
	s.pod.CreationTimestamp = metav1.NewTime(s.Since)
	if s.Sandbox != nil {
		uid = s.Sandbox.UID
		created := metav1.NewTime(s.Sandbox.CreatedAt)
		s.pod.CreationTimestamp = created
		s.pod.Status.StartTime = &created
		s.pod.Annotations = withAnnotation(s.pod.Annotations, annotationSeen, s.Sandbox.CreatedAt.Format(time.RFC3339Nano))
	}
	s.pod.UID = types.UID(uid)
	s.pod.Annotations = withAnnotation(s.pod.Annotations, annotationHash, uid)
	s.pod.Spec.NodeName = s.Node.Name
	switch {
	case s.Removing:
		s.terminating()
	case s.Halt != nil && s.Halt.Deleted && s.Desired != nil && s.Desired.Deleted():
		s.pod.DeletionTimestamp, s.pod.DeletionGracePeriodSeconds = s.Desired.Given.DeletionTimestamp, s.Desired.Given.DeletionGracePeriodSeconds
	}
}

func withAnnotation(m map[string]string, key, value string) map[string]string {
	if value == "" {
		return m
	}
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// terminating sets the deletion time to when the last container is killed at the latest. It makes clients print Terminating.
func (s *statusBuilder) terminating() {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if g := s.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if s.Grace != nil {
		grace = int64(*s.Grace / time.Second)
	}
	end := s.Now
	for i := range s.all {
		c := &s.all[i]
		if c.State != runner.ContainerRunning || !c.Leaving() {
			continue
		}
		sent := c.StopSentAt
		if sent.IsZero() { // its preStop hook runs, or it waits for its turn
			sent = c.StoppingAt
		}
		end = plan.Later(end, plan.KillTime(c, sent, time.Duration(grace)*time.Second))
	}
	at := metav1.NewTime(end)
	s.pod.DeletionTimestamp, s.pod.DeletionGracePeriodSeconds = &at, &grace
}

// addresses fills in host and pod addresses, including those that the kubelet omits without an API server.
func (s *statusBuilder) addresses() {
	st := &s.pod.Status
	if len(s.Node.IPs) > 0 {
		st.HostIP = s.Node.IPs[0]
	}
	for _, ip := range s.Node.IPs {
		st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip})
	}
	if s.Sandbox == nil || !s.Sandbox.Alive {
		return
	}
	ips := s.Sandbox.IPs
	if s.pod.Spec.HostNetwork {
		ips = s.Node.IPs
	}
	if len(ips) > 0 {
		st.PodIP = ips[0]
	}
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, corev1.PodIP{IP: ip})
	}
}

// phase returns the same as the kubelet's getPhase.
func (s *statusBuilder) phase() corev1.PodPhase {
	switch {
	case s.Blind != nil && s.Sandbox == nil:
		return corev1.PodUnknown
	case s.rejected():
		return corev1.PodFailed
	case s.halted() && !s.stopping() && !s.Halt.Deleted:
		return s.haltedPhase()
	case s.failure() != nil, containersOf(s).initFailed():
		return corev1.PodFailed
	case len(s.waitsFor) > 0:
		return corev1.PodPending
	}
	running, restartable, failed := 0, false, false
	for i := range s.pod.Status.ContainerStatuses {
		switch c := &s.pod.Status.ContainerStatuses[i]; {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil:
			restartable = restartable || s.restarts(c.Name)
			failed = failed || c.State.Terminated.ExitCode != 0
		case c.LastTerminationState.Terminated == nil:
			return corev1.PodPending
		default:
			restartable = true
		}
	}
	for i := range s.pod.Status.InitContainerStatuses {
		if s.pod.Status.InitContainerStatuses[i].State.Running != nil {
			running++ // a sidecar while the other containers have ended
		}
	}
	switch {
	case len(s.pod.Status.ContainerStatuses) == 0:
		return corev1.PodPending
	case running > 0, restartable:
		return corev1.PodRunning
	case failed:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// FailureMessage returns the kubelet's text for a failure.
func FailureMessage(f *runner.PodFailure) string {
	if f.Message == "" && f.Reason == runner.ReasonDeadlineExceeded {
		return "Pod was active on the node longer than the specified deadline"
	}
	return f.Message
}

// failure returns why the pod has failed as a whole; nil if it has not.
func (s *statusBuilder) failure() *runner.PodFailure {
	if s.Sandbox == nil {
		return nil
	}
	return s.Sandbox.Failed
}

// restarts reports whether an exited container will be started again.
func (s *statusBuilder) restarts(name string) bool {
	c := shownInstance(s.Containers, name)
	return c != nil && c.State == runner.ContainerExited && !s.Removing && s.Halt == nil && s.restart(c).Wanted
}

func (s *statusBuilder) restart(c *runner.Container) retry.Restart {
	return plan.NextRestart(s.Now, &s.pod.Spec, c, s.Options)
}

// conditions returns the conditions in the kubelet's order.
func (s *statusBuilder) conditions() []corev1.PodCondition {
	var created time.Time
	if s.Sandbox != nil {
		created = s.Sandbox.CreatedAt
	}
	ready := s.ready()
	containersReady := ready
	containersReady.Type = corev1.ContainersReady
	s.gates(&ready)
	all := append(resourcesOf(s).resizing(), []corev1.PodCondition{
		s.networked(created),
		containersOf(s).initializedCondition(created),
		ready,
		containersReady,
		condition(corev1.PodScheduled, true, created),
	}...)
	if since, restarting := s.restarting(); restarting {
		all = append(all, condition(corev1.AllContainersRestarting, true, since))
	}
	if s.halted() && s.Halt.Failed && !s.Halt.Rejected {
		disrupted := condition(corev1.DisruptionTarget, true, s.lastTransition())
		disrupted.Reason, disrupted.Message = corev1.PodReasonTerminationByKubelet, s.Halt.Message
		all = append(all, disrupted)
	}
	return all
}

// restarting reports whether a rule restarts all containers, and since when.
func (s *statusBuilder) restarting() (since time.Time, restarting bool) {
	for i := range s.Containers {
		c := &s.Containers[i]
		if s.Sandbox == nil || c.SandboxID != s.Sandbox.ID || c.Round >= s.round {
			continue
		}
		restarting = true
		if c.Exit != nil && retry.RestartsAll(&s.pod.Spec, c) {
			since = c.Exit.FinishedAt
		}
	}
	return since, restarting
}

func condition(kind corev1.PodConditionType, is bool, since time.Time) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}
	if is {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// gates makes a Ready pod wait for its readiness gates. Controllers of an API server set their conditions; without an API server they are
// never met.
func (s *statusBuilder) gates(ready *corev1.PodCondition) {
	var missing []string
	for _, g := range s.pod.Spec.ReadinessGates {
		at := slices.IndexFunc(s.Given, func(c corev1.PodCondition) bool { return c.Type == g.ConditionType })
		if at < 0 {
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
			continue
		}
		if s.Given[at].Status != corev1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, s.Given[at].Status))
		}
		ready.LastTransitionTime = metav1.NewTime(plan.Later(ready.LastTransitionTime.Time, s.Given[at].LastTransitionTime.Time))
	}
	if ready.Status == corev1.ConditionTrue && len(missing) > 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(missing, ", ")
	}
}

func (s *statusBuilder) ready() corev1.PodCondition {
	var unready []string
	for _, c := range containersOf(s).lasting() {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	c := condition(corev1.PodReady, len(unready) == 0 && len(s.pod.Spec.Containers) > 0, s.lastTransition())
	switch {
	case s.Blind != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, ReasonRuntimeUnreachable, s.Blind.Error()
	case s.pod.Status.Phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case s.pod.Status.Phase == corev1.PodFailed:
		c.Reason = "PodFailed"
	case len(unready) > 0:
		c.Reason = "ContainersNotReady"
		c.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	}
	return c
}

// healthSince returns the time of the probe result from which the current readiness of a running container follows, recorded or not. It is
// zero for a container without startup and readiness probes.
func (s *statusBuilder) healthSince(c *runner.Container) time.Time {
	if h, ok := s.Probes[c.ID]; ok && (h.Started != c.Health.Started || h.Ready != c.Health.Ready) {
		return h.Since
	}
	return c.Health.Since
}

// lastTransition returns when readiness last changed. If all containers are ready, that is the latest start or probe result; otherwise the
// latest end or probe result of one that is not ready, else the creation of the pod.
func (s *statusBuilder) lastTransition() time.Time {
	var started, ended time.Time
	down := false
	for spec := range manifests.LongRunningContainers(&s.pod.Spec) {
		c := shownInstance(s.Containers, spec.Name)
		switch {
		case c == nil:
			down = true
		case c.State == runner.ContainerRunning && s.Ready(spec, c):
			started = plan.Later(started, plan.Later(c.StartedAt, s.healthSince(c)))
		case c.State == runner.ContainerRunning:
			down = true
			ended = plan.Later(ended, plan.Later(c.StartedAt, s.healthSince(c)))
		default:
			down = true
			for _, t := range []*runner.Termination{c.Exit, c.Last} {
				if t != nil {
					ended = plan.Later(ended, t.FinishedAt)
				}
			}
		}
	}
	switch {
	case !down:
		return started
	case ended.IsZero() && s.Sandbox != nil:
		return s.Sandbox.CreatedAt
	}
	return ended
}
