package container

import (
	"errors"
	"path/filepath"
	"strings"

	"monopod/runner/ctrd/podfiles"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// The termination message of a container is a file in memory, see package podfiles, until its text is part of the exit in the
// record. The shim copies it to disk when the container ends, so that it survives a power cut.
//
//	<pod>/files/messages/<container id>    what the container writes
//	<pod>/messages/<container id>          the copy

// removeMessage removes the files of a message after it was recorded.
func (r *Lifecycle) removeMessage(rec *record.Container) error {
	l := &rec.Meta
	errs := []error{trees.RemoveFile(r.Dirs.MessageCopy(l.UID, rec.ID))}
	if strings.HasPrefix(l.MessagePath, r.Dirs.PodDir(l.UID)+"/") {
		errs = append(errs, trees.RemoveFile(l.MessagePath))
	}
	return errors.Join(errs...)
}

// removeMessageFile removes the message of a container that was not created; path may be empty.
func removeMessageFile(path string) error {
	if path == "" {
		return nil
	}
	return trees.RemoveFile(path)
}

// CleanMessages removes the messages of removed containers from the directory of a pod.
func (r *Lifecycle) CleanMessages(uid string) error {
	var errs []error
	used := map[string]bool{}
	for _, rec := range r.Index.OfUID(uid) {
		used[rec.Meta.MessagePath], used[r.Dirs.MessageCopy(uid, rec.ID)] = true, true
	}
	clean := func(dir string) {
		for _, name := range trees.Names(dir) {
			if path := filepath.Join(dir, name); !used[path] {
				errs = append(errs, trees.RemoveFile(path))
			}
		}
	}
	clean(podfiles.Dir{Path: r.Dirs.PodFilesDir(uid)}.Messages())
	clean(filepath.Dir(r.Dirs.MessageCopy(uid, "any")))
	return errors.Join(errs...)
}
