package ctrd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/ctrd/podfiles"
	"monopod/runner/ctrd/shim"
)

// The termination message of a container is a file in memory, see package podfiles, until it is part of the exit on its
// record. What is lost with the machine before that is not the message: the shim copies it to the disk when the container ends.
//
//	<pod>/files/messages/<container id>    what the container writes
//	<pod>/messages/<container id>          the copy
//	<pod>/containers/<name>/<random>       in pods of earlier versions: on disk, of any size

// newMessage makes the file behind terminationMessagePath of a new instance, if it has one, and the files that it shares with
// others if they are not complete: its pod was made by an earlier version, or by an agent that was killed meanwhile.
func (r *Runtime) newMessage(sb *sandboxRecord, c *corev1.Container, id string) (string, error) {
	d := r.podFiles(sb)
	if !d.Complete() {
		if err := r.writeFiles(sb); err != nil {
			return "", err
		}
	}
	if c.TerminationMessagePath == "" {
		return "", nil
	}
	return d.NewMessage(id)
}

// messageCopy is where the shim copies the message of a container.
func (r *Runtime) messageCopy(uid, id string) string {
	return filepath.Join(r.podDir(uid), "messages", id)
}

// keepMessage returns the annotations by which the shim copies the message.
func (r *Runtime) keepMessage(uid, id, path string) map[string]string {
	if path == "" {
		return nil
	}
	return map[string]string{shim.AnnotationMessage: path, shim.AnnotationMessageCopy: r.messageCopy(uid, id)}
}

// removeMessage removes the files of a message that nothing reads any more.
func (r *Runtime) removeMessage(rec *containerRecord) error {
	l := &rec.Labels
	errs := []error{removeFile(r.messageCopy(l.UID, rec.ID))}
	if strings.HasPrefix(l.MessagePath, r.podDir(l.UID)+"/") {
		errs = append(errs, removeFile(l.MessagePath))
	}
	return errors.Join(errs...)
}

// cleanMessages removes the messages of containers that are gone from the directory of a pod.
func (r *Runtime) cleanMessages(uid string) error {
	var errs []error
	used := map[string]bool{}
	for _, rec := range r.index.ofUID(uid) {
		used[rec.Labels.MessagePath], used[r.messageCopy(uid, rec.ID)] = true, true
	}
	clean := func(dir string) {
		for _, name := range names(dir) {
			if path := filepath.Join(dir, name); !used[path] {
				errs = append(errs, removeFile(path))
			}
		}
	}
	clean(podfiles.Dir{Path: r.podFilesDir(uid)}.Messages())
	clean(filepath.Dir(r.messageCopy(uid, "any")))
	former := filepath.Join(r.podDir(uid), "containers")
	for _, container := range names(former) {
		clean(filepath.Join(former, container))
		_ = os.Remove(filepath.Join(former, container)) // if it is empty
	}
	return errors.Join(errs...)
}

// removeMessageFile removes the message of an instance that does not come to be; "": it has none.
func removeMessageFile(path string) error {
	if path == "" {
		return nil
	}
	return removeFile(path)
}
