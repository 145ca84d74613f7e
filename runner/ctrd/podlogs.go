package ctrd

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/runner/ctrd/logs"
)

// Reasons of events about logs; a kubelet has none.
const (
	EventLogsDropped = "LogsDropped"
	EventLogsResumed = "LogsResumed"
	EventLogsTrimmed = "LogsTrimmed"
)

// logNotice records what befalls logs.
func (r *Runtime) logNotice(n logs.Notice) {
	if r.cfg.Events == nil {
		return
	}
	if n.Kind == logs.Trimmed {
		r.cfg.Events.Event(r.nodeRef(), corev1.EventTypeNormal, EventLogsTrimmed,
			fmt.Sprintf("%d log files (%d bytes) were removed: all logs together are larger than podLogsMaxSize allows", n.Files, n.Bytes))
		return
	}
	rec := r.index.container(n.Container)
	if rec == nil {
		return
	}
	ref, name := r.containerRef(rec), rec.Labels.Name
	if n.Kind == logs.Dropping {
		r.cfg.Events.Event(ref, corev1.EventTypeWarning, EventLogsDropped, fmt.Sprintf("the output of container %s is dropped: %v", name, n.Err))
		return
	}
	r.cfg.Events.Event(ref, corev1.EventTypeNormal, EventLogsResumed, fmt.Sprintf("the output of container %s is written again; %d lines are missing", name, n.Lines))
}

func (r *Runtime) nodeRef() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: r.cfg.NodeName}
}

// containerRef is what an event about a container is about.
func (r *Runtime) containerRef(rec *containerRecord) corev1.ObjectReference {
	l := &rec.Labels
	field := "spec.containers{"
	if sb := r.index.sandboxByID(l.SandboxID); sb != nil &&
		slices.ContainsFunc(sb.Pod.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == l.Name }) {
		field = "spec.initContainers{"
	}
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: l.Key.Namespace, Name: l.Key.Name, UID: types.UID(l.UID), FieldPath: field + l.Name + "}"}
}

// ownLogDirs returns the log directories of our pods. The directory that they are in may be shared with a kubelet: only
// the uid says that one is ours.
func (r *Runtime) ownLogDirs() []string {
	known := map[string]bool{}
	for _, rec := range r.index.list() {
		known[rec.Labels.UID] = true
	}
	for _, rec := range r.index.all() {
		known[rec.Labels.UID] = true
	}
	for _, uid := range names(r.podsDir()) {
		known[uid] = true
	}
	var dirs []string
	for _, name := range names(r.cfg.PodLogsDir) {
		if i := strings.LastIndexByte(name, '_'); i >= 0 && known[name[i+1:]] {
			dirs = append(dirs, filepath.Join(r.cfg.PodLogsDir, name))
		}
	}
	return dirs
}
