package ctrd

import (
	"encoding/json"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/embed/guard"
)

// Reasons of events about damaged files of our own.
const (
	// EventDatabaseRestored: a database of the embedded containerd was damaged and replaced by an up-to-date copy.
	EventDatabaseRestored = "DatabaseRestored"
	// EventDatabaseLost: so, but what replaces it is older, or empty.
	EventDatabaseLost = "DatabaseLost"
)

// databaseNotice reports what became of a damaged database.
func (r *Runtime) databaseNotice(d guard.Repair) {
	r.repaired = append(r.repaired, d)
	if r.cfg.Events == nil {
		return
	}
	reason := EventDatabaseRestored
	if !d.Current {
		reason = EventDatabaseLost
	}
	r.cfg.Events.Event(r.nodeRef(), corev1.EventTypeWarning, reason, d.String())
}

// reattachLogs attaches the logs of containers whose files were damaged: the records say where their output goes. What
// is written meanwhile waits in the FIFOs.
func (r *Runtime) reattachLogs() {
	attached := map[string]bool{}
	for _, id := range r.logs.IDs() {
		attached[id] = true
	}
	left := map[string]bool{}
	for _, id := range names(r.path("logs")) {
		left[id] = true
	}
	for _, rec := range r.index.all() {
		if attached[rec.ID] || !left[rec.ID] || rec.Labels.BootID != r.bootID || !filepath.IsAbs(rec.Labels.LogPath) {
			continue
		}
		if _, _, err := r.logs.Attach(rec.ID, rec.Labels.LogPath); err != nil {
			r.log.Error("the output of a container is not copied until it restarts", "pod", rec.Labels.Key.String(), "container", rec.Labels.Name, "err", err)
		}
	}
}

// dropDamaged removes the files that keep an OCI runtime from deleting a container whose processes have ended, and says whether there
// were any: what it knows of the container, which then does not exist for it, and its log.
func (r *Runtime) dropDamaged(id string) bool {
	dropped := false
	drop := func(path string) {
		if err := removeTree(path); err != nil {
			r.log.Warn("remove a damaged file", "path", path, "err", err)
			return
		}
		dropped = true
	}
	log := r.path("containerd", "io.containerd.runtime.v2.task", r.cfg.Namespace, id, "log.json")
	if _, err := atomicfile.Read(log, atomicfile.MaxState); errors.Is(err, atomicfile.ErrDamaged) {
		drop(log)
	}
	for _, rt := range r.runtimes() {
		dir := filepath.Join(rt.root, r.cfg.Namespace, id)
		if !readableJSON(filepath.Join(dir, "state.json")) {
			drop(dir)
		}
	}
	return dropped
}

// readableJSON says that a file can be read and is JSON, or is missing: other runtimes may have other files.
func readableJSON(path string) bool {
	data, err := atomicfile.Read(path, atomicfile.MaxState)
	if err != nil {
		return !errors.Is(err, atomicfile.ErrDamaged)
	}
	return json.Valid(data)
}
