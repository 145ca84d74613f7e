package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/printer"
	"monopod/node"
	"monopod/runner"
)

// podRow is one line of `get pods`.
type podRow struct {
	namespace, name, ready, status, restarts, age string
	ip, node, revision, source, why               string
}

func podHeader() podRow {
	return podRow{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "REVISION", "SOURCE", "WHY"}
}

// rowOf sums up a pod the way kubectl does.
func rowOf(pod *corev1.Pod, now time.Time) podRow {
	ready, restarts, last := 0, 0, time.Time{}
	statuses, lasting := slices.Clone(pod.Status.ContainerStatuses), len(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers { // a sidecar counts like a container
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		lasting++
		for _, s := range pod.Status.InitContainerStatuses {
			if s.Name == c.Name {
				statuses = append(statuses, s)
			}
		}
	}
	for _, c := range statuses {
		if c.Ready && c.State.Running != nil {
			ready++
		}
		restarts += int(c.RestartCount)
		if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	r := podRow{
		namespace: pod.Namespace, name: pod.Name, ready: fmt.Sprintf("%d/%d", ready, lasting), status: podStatus(pod),
		restarts: strconv.Itoa(restarts), age: age(pod, now), ip: or(pod.Status.PodIP, "<none>"), node: or(pod.Spec.NodeName, "<none>"),
		revision: node.RevisionText(pod.Annotations), source: pod.Annotations[node.AnnotationSource], why: printer.OneLine(pod.Annotations[node.AnnotationWhy]),
	}
	if pod.Annotations[node.AnnotationRollback] != "" {
		r.status += ",RolledBack"
	}
	if restarts > 0 && !last.IsZero() {
		r.restarts += fmt.Sprintf(" (%s ago)", duration.HumanDuration(now.Sub(last)))
	}
	return r
}

func age(pod *corev1.Pod, now time.Time) string {
	since := pod.CreationTimestamp.Time
	if since.IsZero() && pod.Status.StartTime != nil {
		since = pod.Status.StartTime.Time
	}
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// podStatus is kubectl's STATUS column: the first thing in the way, else the phase.
func podStatus(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	if mayNotRun(pod) {
		return pod.Status.Reason
	}
	status := or(pod.Status.Reason, string(pod.Status.Phase))
	if s := initStatus(pod); s != "" {
		return s
	}
	running := false
	// The first container with something to say decides, as with kubectl, which goes from the last to the first.
	for _, c := range slices.Backward(pod.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			status = terminatedReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
		}
	}
	if status == "Completed" && running {
		status = "NotReady"
		if isReady(pod) {
			status = "Running"
		}
	}
	return status
}

// mayNotRun says that nothing of a pod runs because nothing may: what its containers have to say is not why.
func mayNotRun(pod *corev1.Pod) bool {
	if slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool { return c.State.Running != nil }) {
		return false
	}
	return slices.Contains([]string{runner.ReasonDrained, runner.ReasonCordoned, runner.ReasonTerminated, runner.ReasonNodeShutdown, runner.ReasonHandedOver}, pod.Status.Reason)
}

// initStatus is empty when initialisation is done.
func initStatus(pod *corev1.Pod) string {
	for i, c := range pod.Status.InitContainerStatuses {
		sidecar := i < len(pod.Spec.InitContainers) && pod.Spec.InitContainers[i].RestartPolicy != nil &&
			*pod.Spec.InitContainers[i].RestartPolicy == corev1.ContainerRestartPolicyAlways
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case t != nil && t.ExitCode == 0:
		case sidecar && c.Started != nil && *c.Started:
		case t != nil:
			return "Init:" + terminatedReason(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			return "Init:" + w.Reason
		default:
			return fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
	}
	return ""
}

func terminatedReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// cells returns the columns of a row.
func (r podRow) cells(wide bool) []string {
	c := []string{r.namespace, r.name, r.ready, r.status, r.restarts, r.age}
	if wide {
		c = append(c, r.ip, r.node, r.revision, or(r.source, "<none>"), or(r.why, "<none>"))
	}
	return c
}
