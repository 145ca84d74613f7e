package objects

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"monopod/manifests"
)

// none stands for an empty cell.
const none = "<none>"

// columns are those of a kind between its name and what -o wide adds; row fills them.
type columns struct {
	head []string
	row  func(o metav1.Object, now time.Time) []string
}

func columnsOf(kind string) columns {
	switch kind {
	case "Deployment":
		return columns{[]string{"READY", "UP-TO-DATE", "AVAILABLE"}, row(deploymentRow)}
	case "ReplicaSet", "ReplicationController":
		return columns{[]string{"DESIRED", "CURRENT", "READY"}, replicaSetRow}
	case "StatefulSet":
		return columns{[]string{"READY"}, row(statefulSetRow)}
	case "DaemonSet":
		return columns{[]string{"DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE"}, row(daemonSetRow)}
	case "Job":
		return columns{[]string{"STATUS", "COMPLETIONS"}, row(jobRow)}
	case "CronJob":
		return columns{[]string{"SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE", "NEXT RUN"}, row(cronJobRow)}
	case "Service":
		return columns{[]string{"TYPE", "CLUSTER-IP", "PORT(S)"}, row(serviceRow)}
	case "ConfigMap":
		return columns{[]string{"DATA"}, row(configMapRow)}
	case "Secret":
		return columns{[]string{"TYPE", "DATA"}, row(secretRow)}
	case "PersistentVolumeClaim":
		return columns{[]string{"STORAGECLASS", "ACCESS MODES"}, row(claimRow)}
	case Node:
		return columns{[]string{"STATUS", "VERSION"}, row(nodeRow)}
	}
	return columns{row: func(metav1.Object, time.Time) []string { return nil }}
}

// row makes a function for any object of one for objects of one type. Objects of other types have no cells.
func row[T metav1.Object](cells func(o T, now time.Time) []string) func(metav1.Object, time.Time) []string {
	return func(o metav1.Object, now time.Time) []string {
		if o, ok := o.(T); ok {
			return cells(o, now)
		}
		return nil
	}
}

// Header returns the titles of the columns of a kind.
func Header(kind string, wide bool) []string {
	head := append([]string{"NAMESPACE", "NAME"}, columnsOf(kind).head...)
	if wide && IsWorkload(kind) {
		head = append(head, "CONTAINERS", "IMAGES")
	}
	if wide {
		head = append(head, "SOURCE")
	}
	return head
}

// Row returns the cells of an object. source is where it is written.
func Row(i Item, now time.Time, wide bool, source string) []string {
	cells := append([]string{cmp.Or(i.Object.GetNamespace(), "-"), i.Object.GetName()}, columnsOf(i.Kind).row(i.Object, now)...)
	if t := manifests.PodTemplate(i.Object); wide && IsWorkload(i.Kind) {
		var names, images []string
		if t != nil {
			for _, c := range t.Spec.Containers {
				names, images = append(names, c.Name), append(images, c.Image)
			}
		}
		cells = append(cells, cmp.Or(strings.Join(names, ","), none), cmp.Or(strings.Join(images, ","), none))
	}
	if wide {
		cells = append(cells, cmp.Or(source, none))
	}
	return cells
}

func text(n int32) string { return strconv.Itoa(int(n)) }

func deploymentRow(d *appsv1.Deployment, _ time.Time) []string {
	return []string{fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1)), text(d.Status.UpdatedReplicas), text(d.Status.AvailableReplicas)}
}

func replicaSetRow(o metav1.Object, _ time.Time) []string {
	switch r := o.(type) {
	case *appsv1.ReplicaSet:
		return []string{text(ptr.Deref(r.Spec.Replicas, 1)), text(r.Status.Replicas), text(r.Status.ReadyReplicas)}
	case *corev1.ReplicationController:
		return []string{text(ptr.Deref(r.Spec.Replicas, 1)), text(r.Status.Replicas), text(r.Status.ReadyReplicas)}
	}
	return nil
}

func statefulSetRow(s *appsv1.StatefulSet, _ time.Time) []string {
	return []string{fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 1))}
}

func daemonSetRow(d *appsv1.DaemonSet, _ time.Time) []string {
	s := d.Status
	return []string{text(s.DesiredNumberScheduled), text(s.CurrentNumberScheduled), text(s.NumberReady), text(s.UpdatedNumberScheduled), text(s.NumberAvailable)}
}

func jobRow(j *batchv1.Job, _ time.Time) []string {
	status := "Running"
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		status = "Suspended"
	}
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			status = string(c.Type)
		}
	}
	return []string{status, fmt.Sprintf("%d/%d", j.Status.Succeeded, completions(j))}
}

func cronJobRow(c *batchv1.CronJob, now time.Time) []string {
	zone, last, suspended := none, none, c.Spec.Suspend != nil && *c.Spec.Suspend
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	if at := c.Status.LastScheduleTime; at != nil {
		last = duration.HumanDuration(max(now.Sub(at.Time), 0))
	}
	return []string{c.Spec.Schedule, zone, map[bool]string{false: "False", true: "True"}[suspended], strconv.Itoa(len(c.Status.Active)), last, NextRun(c, now)}
}

// NextRun returns when the next Job of a CronJob begins.
func NextRun(c *batchv1.CronJob, now time.Time) string {
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return none
	}
	schedule, err := manifests.CronSchedule(&c.Spec)
	if err != nil {
		return "<invalid>"
	}
	next := schedule.Next(now)
	if next.IsZero() {
		return none
	}
	return fmt.Sprintf("%s (in %s)", next.Local().Format("2006-01-02 15:04"), duration.HumanDuration(next.Sub(now)))
}

func serviceRow(s *corev1.Service, _ time.Time) []string {
	var ports []string
	for _, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			port += ":" + strconv.Itoa(int(p.NodePort))
		}
		ports = append(ports, port+"/"+cmp.Or(string(p.Protocol), "TCP"))
	}
	return []string{cmp.Or(string(s.Spec.Type), "ClusterIP"), cmp.Or(s.Spec.ClusterIP, none), cmp.Or(strings.Join(ports, ","), none)}
}

func configMapRow(c *corev1.ConfigMap, _ time.Time) []string {
	return []string{strconv.Itoa(len(c.Data) + len(c.BinaryData))}
}

func secretRow(s *corev1.Secret, _ time.Time) []string {
	return []string{cmp.Or(string(s.Type), string(corev1.SecretTypeOpaque)), strconv.Itoa(len(s.Data))}
}

func claimRow(c *corev1.PersistentVolumeClaim, _ time.Time) []string {
	class := none
	if c.Spec.StorageClassName != nil && *c.Spec.StorageClassName != "" {
		class = *c.Spec.StorageClassName
	}
	var modes []string
	for _, m := range c.Spec.AccessModes {
		modes = append(modes, string(m))
	}
	return []string{class, cmp.Or(strings.Join(modes, ","), none)}
}

func nodeRow(n *corev1.Node, _ time.Time) []string {
	status := "NotReady"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return []string{status, cmp.Or(n.Status.NodeInfo.KubeletVersion, none)}
}
