package ctrd

import (
	"path/filepath"
	"slices"

	"monopod/manifests"
	"monopod/runner"
)

// applied does what follows from an action that was applied: an evicted pod gives back its emptyDirs as soon as nothing of it runs. It comes
// back with new ones, and may have to wait for just the room that they take.
func (r *Runtime) applied(key manifests.Key, kind runner.ActionKind) error {
	if !slices.Contains([]runner.ActionKind{runner.FailPod, runner.FinishContainer, runner.RemoveContainer}, kind) {
		return nil
	}
	return wrap("empty the volumes of an evicted pod", r.emptyEvicted(r.index.sandbox(key)))
}

func (r *Runtime) emptyEvicted(rec *sandboxRecord) error {
	if rec == nil || rec.Labels.Failed != runner.ReasonEvicted && rec.Labels.Failed != runner.ReasonPreempting {
		return nil
	}
	if slices.ContainsFunc(r.index.ofSandbox(rec.ID), func(c *containerRecord) bool { return c.Labels.Exit == nil }) {
		return nil
	}
	return removeTree(filepath.Dir(r.emptyDir(rec.Labels.UID, "any")))
}

// emptyAllEvicted does so for all pods, at the start: it may have been cut off.
func (r *Runtime) emptyAllEvicted() {
	for _, rec := range r.index.list() {
		if err := r.emptyEvicted(rec); err != nil {
			r.log.Warn("volumes of an evicted pod are not emptied", "uid", rec.Labels.UID, "err", err)
		}
	}
}
