package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/why"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/rollout"
)

// newRollouts makes what decides which revisions run.
func (a *App) newRollouts() (*rollout.Controller, error) {
	if _, err := boottime.ID(); err != nil { // a trial could not tell a reboot
		return nil, err
	}
	auto := a.cfg.AutoRollback
	return rollout.New(rollout.Config{
		Store: rollout.NewStore(filepath.Join(a.cfg.RootDirectory, "revisions")), Log: a.Log, Clock: boottime.Now, Notify: a.Board.notify, Changed: a.recordTransition, Images: a.pins.want,
		Options: rollout.Options{AutoRollback: auto.Enabled, ReadyDeadline: auto.ReadyDeadline, Soak: auto.Soak},
	}), nil
}

// recordTransition records what happened to a revision. That a new pod has come, and is Ready, others record.
func (a *App) recordTransition(t rollout.Transition) {
	eventType := corev1.EventTypeNormal
	switch {
	case t.Revision == 1 && t.Kind != rollout.RolledBack:
		return
	case t.Kind == rollout.RevisionFailed, t.Kind == rollout.RolledBack:
		eventType = corev1.EventTypeWarning
	}
	a.events.Event(podRef(t.Key), eventType, string(t.Kind), t.Message)
}

// toPool is what a Controller hands on to a pool.
func toPool(pool *pool.Pool, d pool.Desired) rollout.Wanted {
	return rollout.Wanted{Pods: d.Pods, Removable: d.Removable, Keeps: d.Keeps, Hand: func(pods []*manifests.Pod) {
		handed := d
		handed.Pods = pods
		pool.Update(handed)
	}}
}

// sighting is what a status says about the revision that runs; nil: the pod has not been looked at, or cannot be.
func sighting(s podstatus.Status) *rollout.Observed {
	if !s.Looked || s.Halted() { // a trial does not fail because nothing may run
		return nil
	}
	o := &rollout.Observed{Recorded: s.Recorded, Seen: rollout.Seen{Why: s.Why, Images: s.Images, Ready: s.Pod.Status.Phase == corev1.PodSucceeded}}
	for _, c := range s.Pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionUnknown {
			return nil
		}
		o.Ready = o.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	for _, list := range [][]corev1.ContainerStatus{s.Pod.Status.InitContainerStatuses, s.Pod.Status.ContainerStatuses} {
		for i := range list {
			o.Restarts += int(list[i].RestartCount)
		}
	}
	return o
}

// withRevision adds to a view which revision of the pod runs.
func (b *board) withRevision(v node.PodView) node.PodView {
	r, ok := b.rollouts.View(manifests.Key{Namespace: v.Pod.Namespace, Name: v.Pod.Name})
	if !ok {
		return v
	}
	v.Revision = node.RevisionView{Number: r.Active, Rollback: rollbackText(r), Update: updateText(r)}
	if r.Rollback != nil {
		v.Revision.Written = r.Written
	}
	v.Why = cmp.Or(v.Why, v.Revision.Rollback, v.Revision.Update)
	return v
}

// rollbackText is empty when the pod was not gone back with.
func rollbackText(v rollout.View) string {
	r := v.Rollback
	if r == nil {
		return ""
	}
	why := "by hand"
	if r.Kind == rollout.Automatic {
		why = r.Reason
	}
	return fmt.Sprintf("revision %d runs instead of %d until the manifest changes: %s", v.Active, v.Wanted, why)
}

// rollbackOf is the rollback of a pod as `why` explains it.
func rollbackOf(v rollout.View) why.Rollback {
	if v.Rollback == nil {
		return why.Rollback{}
	}
	return why.Rollback{Text: rollbackText(v), Wanted: v.Wanted, ByHand: v.Rollback.Kind != rollout.Automatic, Culprit: v.Rollback.Culprit}
}

// updateText is empty when nothing is awaited.
func updateText(v rollout.View) string {
	switch {
	case v.Waits != manifests.Key{}:
		return fmt.Sprintf("revision %d waits until pod %s is Ready, which comes before it in its update group", v.Wanted, v.Waits)
	case v.Trial != nil && v.Trial.ReadyAt != 0:
		return fmt.Sprintf("revision %d is on trial: it must stay Ready, or revision %d returns", v.Active, v.Base)
	case v.Trial != nil:
		return fmt.Sprintf("revision %d is on trial: it must become Ready in time, or revision %d returns", v.Active, v.Base)
	}
	return ""
}

// revisions is node.Revisions.
type revisions struct{ c *rollout.Controller }

// History implements node.Revisions.
func (r revisions) History(key manifests.Key) *node.History {
	s := r.c.State(key)
	if s == nil {
		return nil
	}
	h := &node.History{Namespace: key.Namespace, Name: key.Name, Wanted: s.Wanted, Active: s.Active}
	if v, ok := r.c.View(key); ok {
		h.Rollback, h.Update = rollbackText(v), updateText(v)
	}
	for i := range s.Revisions {
		rev := &s.Revisions[i]
		h.Revisions = append(h.Revisions, node.Revision{
			Number: rev.Number, Outcome: string(rev.Outcome), Reason: rev.Reason, Source: node.Position(rev.Origin),
			Accepted: rev.Accepted, Settled: rev.Settled, Images: rev.Images, Manifest: rev.Manifest.JSON(),
		})
	}
	return h
}

// Rollback implements node.Revisions.
func (r revisions) Rollback(key manifests.Key, to int) (*node.History, error) {
	_, err := r.c.Rollback(key, to)
	if err != nil && !errors.Is(err, rollout.ErrNotStored) {
		return nil, err
	}
	h := r.History(key)
	if h == nil {
		return nil, rollout.ErrUnknown
	}
	if err != nil {
		h.Warning = err.Error()
	}
	return h, nil
}
