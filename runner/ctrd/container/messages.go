package container

import (
	"errors"
	"path/filepath"
	"strings"

	"monopod/runner/ctrd/podfiles"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// The termination message of a container is a file in memory, see package podfiles, until it is part of the exit on its
// record. What is lost with the machine before that is not the message: the shim copies it to the disk when the container ends.
//
//	<pod>/files/messages/<container id>    what the container writes
//	<pod>/messages/<container id>          the copy

// removeMessage removes the files of a message that nothing reads any more.
func (r *Lifecycle) removeMessage(rec *record.Container) error {
	l := &rec.Meta
	errs := []error{trees.RemoveFile(r.Dirs.MessageCopy(l.UID, rec.ID))}
	if strings.HasPrefix(l.MessagePath, r.Dirs.PodDir(l.UID)+"/") {
		errs = append(errs, trees.RemoveFile(l.MessagePath))
	}
	return errors.Join(errs...)
}

// removeMessageFile removes the message of an instance that does not come to be; "": it has none.
func removeMessageFile(path string) error {
	if path == "" {
		return nil
	}
	return trees.RemoveFile(path)
}

// CleanMessages removes the messages of containers that are gone from the directory of a pod.
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
