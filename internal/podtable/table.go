// Package podtable makes the rows that `monopod get pods` prints: kubectl's columns of a pod.
//
// It must not ask a daemon. It has no goroutines.
package podtable

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/podsummary"
	"monopod/internal/printer"
	"monopod/node"
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
	sum := podsummary.Of(pod)
	r := PodRow{
		Namespace: pod.Namespace, Name: pod.Name, Ready: sum.ReadyText(), Status: sum.Status,
		Restarts: sum.RestartsText(now), age: age(pod, now), IP: cmp.Or(pod.Status.PodIP, "<none>"), node: cmp.Or(pod.Spec.NodeName, "<none>"),
		revision: node.RevisionText(pod.Annotations), source: pod.Annotations[node.AnnotationSource], why: printer.OneLine(pod.Annotations[node.AnnotationWhy]),
	}
	if pod.Annotations[node.AnnotationRollback] != "" {
		r.Status += ",RolledBack"
	}
	return r
}

func age(pod *corev1.Pod, now time.Time) string {
	if pod.CreationTimestamp.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(pod.CreationTimestamp.Time))
}

// PodStatus is kubectl's STATUS column: the first problem, or the phase.
func PodStatus(pod *corev1.Pod) string { return podsummary.Of(pod).Status }

// Cells returns the columns of a row.
func (r PodRow) Cells(wide bool) []string {
	c := []string{r.Namespace, r.Name, r.Ready, r.Status, r.Restarts, r.age}
	if wide {
		c = append(c, r.IP, r.node, r.revision, cmp.Or(r.source, "<none>"), cmp.Or(r.why, "<none>"))
	}
	return c
}
