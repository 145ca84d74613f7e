// Package nodeevents records what happens to this machine: start and stop, containerd lost and found, inputs refused, revisions, processes killed.
//
// It must not react to what it records. It starts no goroutines but those of Record and WatchOOM.
package nodeevents

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/version"
	"monopod/manifests"
	"monopod/node/events"
	"monopod/runner/rollout"
	"monopod/watcher/applied"
)

// Reasons of events for which a kubelet has no counterpart, except Starting.
const (
	reasonStarting     = "Starting"
	reasonStopping     = "Stopping"
	reasonRuntimeLost  = "ContainerdUnreachable"
	reasonRuntimeFound = "ContainerdReachable"
	reasonAppliedLost  = "AppliedChangeLost"
)

// Recorder records events, with the node as the default object.
type Recorder struct {
	*events.Recorder
	node string
	log  *slog.Logger
}

// New returns a Recorder for a node.
func New(rec *events.Recorder, node string, log *slog.Logger) *Recorder {
	return &Recorder{Recorder: rec, node: node, log: log}
}

// Node records an event of this machine.
func (r *Recorder) Node(eventType, reason, message string) {
	r.Event(events.NodeRef(r.node), eventType, reason, message)
}

// Record runs the recorder until the returned function is called, which records the farewell. Call it after everything that records has ended.
func (r *Recorder) Record(ctx context.Context, farewell string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return r.Run(ctx) })
	r.Node(corev1.EventTypeNormal, reasonStarting, "Starting monopod "+version.String())
	return func() {
		r.Node(corev1.EventTypeNormal, reasonStopping, farewell)
		cancel()
		if err := g.Wait(); err != nil {
			r.log.Error("record events", "err", err)
		}
	}
}

// Connection returns a function that records why containerd does not answer, or with nil that it answers again.
func (r *Recorder) Connection(embedded bool) func(error) {
	found := "containerd responds again"
	if embedded {
		found = "the containerd inside monopod is running"
	}
	return func(err error) {
		if err != nil {
			r.Node(corev1.EventTypeWarning, reasonRuntimeLost, "the container runtime does not respond: "+err.Error())
			return
		}
		r.Node(corev1.EventTypeNormal, reasonRuntimeFound, found)
	}
}

// AppliedLost records a change of applied objects that cannot be finished because its record is damaged.
func (r *Recorder) AppliedLost(err *applied.DamagedError) {
	r.log.Error(err.Error())
	r.Node(corev1.EventTypeWarning, reasonAppliedLost, err.Error())
}

// Transition records a change of a revision. The first revision of a pod is not recorded: its other events show it.
func (r *Recorder) Transition(t rollout.Transition) {
	eventType := corev1.EventTypeNormal
	switch {
	case t.Revision == 1 && t.Kind != rollout.RolledBack:
		return
	case t.Kind == rollout.RevisionFailed, t.Kind == rollout.RolledBack:
		eventType = corev1.EventTypeWarning
	}
	r.Event(PodRef(t.Key), eventType, string(t.Kind), t.Message)
}

// PodRef returns a reference to a pod whose UID is not known.
func PodRef(key manifests.Key) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name}
}
