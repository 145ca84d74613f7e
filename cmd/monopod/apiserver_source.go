package main

import (
	"context"
	"errors"
	"time"

	"monopod/node/apiserver"
	"monopod/watcher"
)

// boundAgain is how long after an answer of the API server's source it is asked for the next one, which it gives when there is one.
const boundAgain = 500 * time.Millisecond

// boundPods returns the source of the pods that the API server binds to this node.
func (a *App) boundPods() watcher.Source {
	return watcher.NewRemote(watcher.RemoteConfig{
		Name: sourceAPIServer, Input: "API server, node " + a.cfg.NodeName, Place: a.cfg.Kubeconfig + "\n" + a.cfg.NodeName,
		Fetcher: bound{func() *apiserver.Agent { return a.reporter }}, Period: boundAgain,
		Load: loadParts(sourceAPIServer, a.cfg.policy("")), Copy: a.cfg.copyOf(sourceAPIServer), Log: a.log,
	})
}

// bound is the reporter as a place of manifests.
type bound struct{ agent func() *apiserver.Agent }

// Fetch implements watcher.Fetcher.
func (b bound) Fetch(ctx context.Context, seen watcher.Validators) (*watcher.Answer, error) {
	body, tag, err := b.agent().Bound(ctx, seen.ETag)
	switch {
	case errors.Is(err, apiserver.ErrSame):
		return nil, watcher.ErrNotModified
	case err != nil:
		return nil, err
	}
	return &watcher.Answer{Body: body, Validators: watcher.Validators{ETag: tag}}, nil
}

// Close implements watcher.Fetcher.
func (bound) Close() {}
