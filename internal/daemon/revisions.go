package daemon

import (
	"errors"

	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
)

// revisions implements node.Revisions.
type revisions struct{ c *rollout.Controller }

// History implements node.Revisions.
func (r revisions) History(key manifests.Key) *localapi.History {
	known := r.c.State(key)
	if known == nil {
		return nil
	}
	h := &localapi.History{Namespace: key.Namespace, Name: key.Name, Wanted: known.Wanted, Active: known.Active}
	if v, ok := r.c.View(key); ok {
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
