package ctrd

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod/manifests"
	"monopod/runner"
)

// Observe implements runner.Runtime. It asks containerd for the sandbox record and for each task that may exist; everything else
// comes from the index.
//
// A container without a task that was never started is a leftover of an interrupted CreateContainer. It is not reported, and
// removed in the background.
func (r *Runtime) Observe(ctx context.Context, key manifests.Key) (runner.PodState, error) {
	ctx = r.ns(ctx)
	var st runner.PodState
	if rec := r.index.Sandbox(key); rec != nil {
		// The index has the record, but the call proves that containerd answers.
		if _, err := r.client.SandboxStore().Get(ctx, rec.ID); err != nil {
			if !errdefs.IsNotFound(err) {
				return runner.PodState{}, fmt.Errorf("sandbox %s: %w", rec.ID, err)
			}
			r.index.DeleteSandbox(rec.ID)
		} else {
			st.Sandbox = r.sandboxes.ObserveSandbox(rec)
		}
	}
	if rec := r.index.Place(key); st.Sandbox == nil && rec != nil {
		st.Place = rec.Pod
	}
	for _, rec := range r.index.OfPod(key) {
		c, err := r.lifecycle.ObserveContainer(ctx, rec)
		if err != nil {
			return runner.PodState{}, fmt.Errorf("container %s: %w", rec.Meta.Name, err)
		}
		if c == nil {
			r.removal.Discard(rec.ID)
			continue
		}
		st.Containers = append(st.Containers, *c)
	}
	return st, nil
}
