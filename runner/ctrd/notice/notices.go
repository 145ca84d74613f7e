// Package notice records events about logs, the network, images and databases. It must not repair anything.
package notice

import (
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/embed/guard"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/taskwatch"
)

// Reasons of events about the pod network, which a kubelet does not have.
const (
	EventNetworkDamaged  = "NetworkDamaged"
	EventNetworkRepaired = "NetworkRepaired"
)

// Notices records events about logs, the network, images and databases.
type Notices struct {
	Index *record.Index
	// Recorder records the events; nil disables it.
	Recorder runner.Recorder
	NodeName string
	Watch    *taskwatch.Watchers
	Log      *slog.Logger

	// Repaired are the databases of the embedded containerd that had to be replaced at startup.
	Repaired []guard.Repair
}

// NetworkNotice records network damage for each affected pod. If all pods were repaired together, it records only an event of the
// node.
func (r *Notices) NetworkNotice(n network.Notice) {
	if r.Recorder == nil {
		return
	}
	kind, reason, text := corev1.EventTypeNormal, EventNetworkRepaired, "the pod network was damaged and has been repaired: "+n.Damage
	if n.Err != nil {
		kind, reason, text = corev1.EventTypeWarning, EventNetworkDamaged, fmt.Sprintf("the pod network is damaged: %s: %v", n.Damage, n.Err)
	}
	if n.Sandbox == "" {
		r.Recorder.Event(r.nodeRef(), kind, reason, text)
	}
	for _, rec := range r.Index.List() {
		if rec.Meta.State == record.Active && !rec.Pod.Object.Spec.HostNetwork && (n.Sandbox == "" || n.Sandbox == rec.ID) {
			r.Recorder.Event(podRef(rec.Meta.Key, rec.Meta.UID), kind, reason, text)
			r.Watch.Notify(rec.Meta.Key)
		}
	}
}

func podRef(key manifests.Key, uid string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}
}

// Reasons of events about logs, which a kubelet does not have.
const (
	EventLogsDropped = "LogsDropped"
	EventLogsResumed = "LogsResumed"
	EventLogsTrimmed = "LogsTrimmed"
)

// LogNotice records lost output, and its end.
func (r *Notices) LogNotice(n logs.Notice) {
	if r.Recorder == nil {
		return
	}
	if n.Kind == logs.Trimmed {
		r.Recorder.Event(r.nodeRef(), corev1.EventTypeNormal, EventLogsTrimmed,
			fmt.Sprintf("%d log files (%d bytes) were removed: the total size of logs exceeds podLogsMaxSize", n.Files, n.Bytes))
		return
	}
	rec := r.Index.Container(n.Container)
	if rec == nil {
		return
	}
	ref, name := r.containerRef(rec), rec.Meta.Name
	if n.Kind == logs.Dropping {
		r.Recorder.Event(ref, corev1.EventTypeWarning, EventLogsDropped, fmt.Sprintf("the output of container %s is dropped: %v", name, n.Err))
		return
	}
	r.Recorder.Event(ref, corev1.EventTypeNormal, EventLogsResumed, fmt.Sprintf("the output of container %s is logged again; %d lines are missing", name, n.Lines))
}

func (r *Notices) nodeRef() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: r.NodeName}
}

// containerRef returns the involved object of an event about a container.
func (r *Notices) containerRef(rec *record.Container) corev1.ObjectReference {
	l := &rec.Meta
	field := "spec.containers{"
	if sb := r.Index.SandboxByID(l.SandboxID); sb != nil &&
		slices.ContainsFunc(sb.Pod.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == l.Name }) {
		field = "spec.initContainers{"
	}
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: l.Key.Namespace, Name: l.Key.Name, UID: types.UID(l.UID), FieldPath: field + l.Name + "}"}
}

// Reasons of events about damaged files of our own.
const (
	// EventDatabaseRestored is for a damaged database of the embedded containerd that was replaced by an up-to-date copy.
	EventDatabaseRestored = "DatabaseRestored"
	// EventDatabaseLost is for a damaged database that was replaced by an older or empty one.
	EventDatabaseLost = "DatabaseLost"
)

// DatabaseNotice records the repair of a damaged database.
func (r *Notices) DatabaseNotice(d guard.Repair) {
	r.Repaired = append(r.Repaired, d)
	if r.Recorder == nil {
		return
	}
	reason := EventDatabaseRestored
	if !d.Current {
		reason = EventDatabaseLost
	}
	r.Recorder.Event(r.nodeRef(), corev1.EventTypeWarning, reason, d.String())
}

// Reasons of events about damage.
const (
	EventImageRepaired = "ImageRepaired"
	EventImageDamaged  = "ImageDamaged"
)

// DamageNotice records damage of an image, and whether it was repaired.
func (r *Notices) DamageNotice(name, damage string, err error) {
	kind, reason, text := corev1.EventTypeNormal, EventImageRepaired, "image "+name+" was damaged and is repaired: "+damage
	if err != nil {
		kind, reason, text = corev1.EventTypeWarning, EventImageDamaged, "image "+name+" is damaged: "+damage+": "+err.Error()
	}
	r.Log.Warn(text)
	if r.Recorder != nil {
		r.Recorder.Event(r.nodeRef(), kind, reason, text)
	}
}
