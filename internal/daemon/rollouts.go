package daemon

import (
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/internal/daemon/board"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
)

// newRollouts makes what decides which revisions run.
func (a *App) newRollouts() (*rollout.Controller, error) {
	if _, err := boottime.ID(); err != nil { // a trial could not tell a reboot
		return nil, err
	}
	auto := a.cfg.AutoRollback
	return rollout.New(rollout.Config{
		Store: rollout.NewStore(filepath.Join(a.cfg.RootDirectory, "revisions")), Log: a.Log, Clock: boottime.Now, Notify: a.Board.Notify, Changed: a.recordTransition, Images: a.pins.Want,
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

// revisions is node.Revisions.
type revisions struct{ c *rollout.Controller }

// History implements node.Revisions.
func (r revisions) History(key manifests.Key) *localapi.History {
	s := r.c.State(key)
	if s == nil {
		return nil
	}
	h := &localapi.History{Namespace: key.Namespace, Name: key.Name, Wanted: s.Wanted, Active: s.Active}
	if v, ok := r.c.View(key); ok {
		h.Rollback, h.Update = board.RollbackText(v), board.UpdateText(v)
	}
	for i := range s.Revisions {
		rev := &s.Revisions[i]
		h.Revisions = append(h.Revisions, localapi.Revision{
			Number: rev.Number, Outcome: string(rev.Outcome), Reason: rev.Reason, Source: node.Position(rev.Origin),
			Accepted: rev.Accepted, Settled: rev.Settled, Images: rev.Images, Manifest: rev.Manifest.JSON(),
		})
	}
	return h
}

// Rollback implements node.Revisions.
func (r revisions) Rollback(key manifests.Key, to int) (*localapi.History, error) {
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
