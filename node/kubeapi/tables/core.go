package tables

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// core adds pods, and the kinds of the core group that hold data.
func core(all map[schema.GroupVersionKind]*table) {
	v1 := corev1.SchemeGroupVersion
	all[v1.WithKind("Pod")] = show("Name,Ready,Status,Restarts,Age,*IP,*Node,*Nominated Node,*Readiness Gates", podRow)
	all[v1.WithKind("ConfigMap")] = show("Name,Data,Age", func(o *corev1.ConfigMap, now time.Time) []any {
		return []any{o.Name, int64(len(o.Data) + len(o.BinaryData)), created(o, now)}
	})
	all[v1.WithKind("Secret")] = show("Name,Type,Data,Age", func(o *corev1.Secret, now time.Time) []any {
		return []any{o.Name, string(o.Type), int64(len(o.Data)), created(o, now)}
	})
	all[v1.WithKind("Namespace")] = show("Name,Status,Age", func(o *corev1.Namespace, now time.Time) []any {
		return []any{o.Name, string(o.Status.Phase), created(o, now)}
	})
	list := "Last Seen,Type,Reason,Object,*Subobject,*Source,Message,*First Seen,*Count,*Name"
	all[v1.WithKind("Event")] = show(list, eventRow)
	all[eventsv1.SchemeGroupVersion.WithKind("Event")] = show(list, newEventRow)
}

// nodes adds nodes.
func nodes(all map[schema.GroupVersionKind]*table) {
	all[corev1.SchemeGroupVersion.WithKind("Node")] = show(
		"Name,Status,Roles,Age,Version,*Internal-IP,*External-IP,*OS-Image,*Kernel-Version,*Container-Runtime", nodeRow)
}

func nodeRow(o *corev1.Node, now time.Time) []any {
	info := o.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	address := func(t corev1.NodeAddressType) string {
		at := slices.IndexFunc(o.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == t })
		if at < 0 {
			return none
		}
		return o.Status.Addresses[at].Address
	}
	return []any{
		o.Name, nodeStatus(o), cmp.Or(strings.Join(roles(o), ","), none), created(o, now), info.KubeletVersion,
		address(corev1.NodeInternalIP), address(corev1.NodeExternalIP), cmp.Or(info.OSImage, unknown), kernel, cmp.Or(info.ContainerRuntimeVersion, unknown),
	}
}

func nodeStatus(o *corev1.Node) string {
	status := "Unknown"
	for _, c := range o.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "Ready"
		if c.Status != corev1.ConditionTrue {
			status = "NotReady"
		}
	}
	if o.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// roles returns the roles in the labels of a node.
func roles(o *corev1.Node) []string {
	var all []string
	for label, value := range o.Labels {
		role, found := strings.CutPrefix(label, "node-role.kubernetes.io/")
		if label == "kubernetes.io/role" {
			role, found = value, true
		}
		if found && role != "" {
			all = append(all, role)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func eventRow(o *corev1.Event, now time.Time) []any {
	first := since(cmpTime(o.FirstTimestamp.Time, o.EventTime.Time), now)
	last, count := first, o.Count
	if !o.LastTimestamp.IsZero() {
		last = since(o.LastTimestamp.Time, now)
	}
	if o.Series != nil {
		last, count = since(o.Series.LastObservedTime.Time, now), o.Series.Count
	} else {
		count = max(count, 1)
	}
	source := from(cmp.Or(o.Source.Component, o.ReportingController), cmp.Or(o.Source.Host, o.ReportingInstance))
	return []any{
		last, o.Type, o.Reason, about(o.InvolvedObject), o.InvolvedObject.FieldPath, source, strings.TrimSpace(o.Message), first, int64(count), o.Name,
	}
}

func newEventRow(o *eventsv1.Event, now time.Time) []any {
	old := corev1.Event{
		ObjectMeta: o.ObjectMeta, InvolvedObject: o.Regarding, Reason: o.Reason, Message: o.Note, Type: o.Type, Source: o.DeprecatedSource,
		FirstTimestamp: o.DeprecatedFirstTimestamp, LastTimestamp: o.DeprecatedLastTimestamp, Count: o.DeprecatedCount, EventTime: o.EventTime,
		ReportingController: o.ReportingController, ReportingInstance: o.ReportingInstance,
	}
	if o.Series != nil {
		old.Series = &corev1.EventSeries{Count: o.Series.Count, LastObservedTime: o.Series.LastObservedTime}
	}
	return eventRow(&old, now)
}

func cmpTime(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func from(component, instance string) string {
	if instance == "" {
		return component
	}
	return component + ", " + instance
}

func about(o corev1.ObjectReference) string {
	if o.Name == "" {
		return strings.ToLower(o.Kind)
	}
	return strings.ToLower(o.Kind) + "/" + o.Name
}

// shorten joins the first elements of a list.
func shorten(all []string, empty string) string {
	if len(all) == 0 {
		return empty
	}
	text := strings.Join(all[:min(len(all), shortList)], ",")
	if more := len(all) - shortList; more > 0 {
		text += " + " + strconv.Itoa(more) + " more..."
	}
	return text
}

func addressAndPort(ip string, port int32) string {
	return net.JoinHostPort(ip, strconv.Itoa(int(port)))
}
