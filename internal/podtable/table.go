// Package podtable makes the rows that `monopod get pods` prints: kubectl's columns of a pod.
//
// It must not ask a daemon. It has no goroutines.
package podtable

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner"
)

// PodRow is one line of `get pods`.
type PodRow struct {
	Namespace, Name, Ready, Status, Restarts, age string
	IP, node, revision, source, why               string
}

// PodHeader returns the column titles.
func PodHeader() PodRow {
	return PodRow{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "REVISION", "SOURCE", "WHY"}
}

// RowOf sums up a pod the way kubectl does.
func RowOf(pod *corev1.Pod, now time.Time) PodRow {
	ready, restarts, last := 0, 0, time.Time{}
	statuses, lasting := slices.Clone(pod.Status.ContainerStatuses), len(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers { // a sidecar counts like a container
		if !manifests.IsSidecar(&c) {
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
	r := PodRow{
		Namespace: pod.Namespace, Name: pod.Name, Ready: fmt.Sprintf("%d/%d", ready, lasting), Status: PodStatus(pod),
		Restarts: strconv.Itoa(restarts), age: age(pod, now), IP: cmp.Or(pod.Status.PodIP, "<none>"), node: cmp.Or(pod.Spec.NodeName, "<none>"),
		revision: node.RevisionText(pod.Annotations), source: pod.Annotations[node.AnnotationSource], why: printer.OneLine(pod.Annotations[node.AnnotationWhy]),
	}
	if pod.Annotations[node.AnnotationRollback] != "" {
		r.Status += ",RolledBack"
	}
	if restarts > 0 && !last.IsZero() {
		r.Restarts += fmt.Sprintf(" (%s ago)", duration.HumanDuration(now.Sub(last)))
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

// PodStatus is kubectl's STATUS column: the first problem, or the phase.
func PodStatus(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	if mayNotRun(pod) {
		return pod.Status.Reason
	}
	status := cmp.Or(pod.Status.Reason, string(pod.Status.Phase))
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
		if manifests.IsReady(pod) {
			status = "Running"
		}
	}
	return status
}

// mayNotRun reports whether the pod as a whole is not allowed to run: the states of its containers are not the reason.
func mayNotRun(pod *corev1.Pod) bool {
	if slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool { return c.State.Running != nil }) {
		return false
	}
	return slices.Contains([]string{runner.ReasonDrained, runner.ReasonCordoned, runner.ReasonTerminated, runner.ReasonNodeShutdown, runner.ReasonHandedOver}, pod.Status.Reason)
}

// initStatus is empty when initialisation is done.
func initStatus(pod *corev1.Pod) string {
	for i, c := range pod.Status.InitContainerStatuses {
		sidecar := i < len(pod.Spec.InitContainers) && manifests.IsSidecar(&pod.Spec.InitContainers[i])
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

// Cells returns the columns of a row.
func (r PodRow) Cells(wide bool) []string {
	c := []string{r.Namespace, r.Name, r.Ready, r.Status, r.Restarts, r.age}
	if wide {
		c = append(c, r.IP, r.node, r.revision, cmp.Or(r.source, "<none>"), cmp.Or(r.why, "<none>"))
	}
	return c
}
