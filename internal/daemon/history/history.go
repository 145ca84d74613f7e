// Package history shows the revisions of pods to clients, and rolls pods back for them.
//
// It must not decide which revision runs, which runner/rollout does. It starts no goroutines.
package history

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
)

// Revisions implements node.Revisions.
type Revisions struct{ Of *rollout.Controller }

// History implements node.Revisions.
func (r Revisions) History(key manifests.Key) *localapi.History {
	known := r.Of.State(key)
	if known == nil {
		return nil
	}
	h := &localapi.History{Namespace: key.Namespace, Name: key.Name, Wanted: known.Wanted, Active: known.Active}
	if v, ok := r.Of.View(key); ok {
		h.Rollback, h.Update = state.RollbackText(v), state.UpdateText(v)
	}
	for i := range known.Revisions {
		rev := &known.Revisions[i]
		h.Revisions = append(h.Revisions, localapi.Revision{
			Number: rev.Number, Outcome: string(rev.Outcome), Reason: rev.Reason, Source: node.Position(rev.Origin),
			Accepted: rev.Accepted, Settled: rev.Settled, Images: rev.Images, Manifest: rev.Manifest.JSON(),
		})
	}
	return h
}

// Rollback implements node.Revisions.
func (r Revisions) Rollback(key manifests.Key, to int, admit func(*corev1.Pod) error) (*localapi.History, error) {
	_, err := r.Of.Rollback(key, to, func(rev *rollout.Revision) error {
		pod, err := rev.Pod(rev.Origin)
		if err != nil {
			return err
		}
		return admit(pod.Object)
	})
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
