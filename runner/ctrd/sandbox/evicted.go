package sandbox

import (
	"path/filepath"
	"slices"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// Applied is called after an action: it removes the emptyDirs of an evicted pod once none of its containers runs. The pod comes
// back with new ones, and may have to wait for just the disk space that they use.
func (r *Manager) Applied(key manifests.Key, kind runner.ActionKind) error {
	if !slices.Contains([]runner.ActionKind{runner.FailPod, runner.FinishContainer, runner.RemoveContainer}, kind) {
		return nil
	}
	return fault.Wrap("empty the volumes of an evicted pod", r.emptyEvicted(r.Index.Sandbox(key)))
}

func (r *Manager) emptyEvicted(rec *record.Sandbox) error {
	if rec == nil || rec.Meta.Failed != runner.ReasonEvicted && rec.Meta.Failed != runner.ReasonPreempting {
		return nil
	}
	if slices.ContainsFunc(r.Index.OfSandbox(rec.ID), func(c *record.Container) bool { return c.Meta.Exit == nil }) {
		return nil
	}
	return trees.Remove(filepath.Dir(r.Dirs.EmptyDir(rec.Meta.UID, "any")))
}

// EmptyAllEvicted does the same for all pods at startup, because it may have been interrupted.
func (r *Manager) EmptyAllEvicted() {
	for _, rec := range r.Index.List() {
		if err := r.emptyEvicted(rec); err != nil {
			r.Log.Warn("remove the emptyDirs of an evicted pod", "uid", rec.Meta.UID, "err", err)
		}
	}
}
