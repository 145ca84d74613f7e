// Package fsgroup changes the group of a volume's files to the pod's fsGroup, by the rules of the kubelet's volume package. It
// must not know pods, or decide which volumes are changed; hostPath volumes never are.
//
// It has no goroutines.
package fsgroup

import (
	"context"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// Owner is the group of the files of a volume.
type Owner struct {
	// GID is the pod's fsGroup.
	GID int64
	// OnRootMismatch skips the walk if the volume's root has the right group and mode.
	OnRootMismatch bool
}

// Mode bits that are added for the group.
const (
	readWrite  = 0o660
	searchable = 0o110
)

// Apply changes the group of a directory tree: files become readable and writable for it, directories also searchable, with the
// setgid bit so that new files inherit the group. Of symlinks only the group changes. Containers may write to the tree
// concurrently: links are not followed out of it, vanished files are skipped, and nothing is opened but directories.
func Apply(ctx context.Context, dir string, o Owner) error {
	root, err := foreign.Dir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if o.OnRootMismatch && o.matches(st) {
		return nil
	}
	// The root comes last, so that an interrupted walk is repeated.
	err = foreign.Walk(ctx, root, func(_ string, place *os.File) error { return o.own(place) })
	if err != nil {
		return fmt.Errorf("give to fsGroup %d: %w", o.GID, err)
	}
	return nil
}

// own changes one file.
func (o Owner) own(place *os.File) error {
	if err := foreign.Chgrp(place, int(o.GID)); err != nil {
		return err
	}
	var st unix.Stat_t // after the change of the group, which removes setuid bits
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: place.Name(), Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK {
		return nil
	}
	return foreign.Chmod(place, st.Mode&0o7777|bits(kind == unix.S_IFDIR))
}

// bits returns the minimum mode of a file or directory.
func bits(dir bool) uint32 {
	if dir {
		return readWrite | searchable | unix.S_ISGID
	}
	return readWrite
}

// matches reports whether a volume's root needs no change.
func (o Owner) matches(st unix.Stat_t) bool {
	want := bits(true)
	return int64(st.Gid) == o.GID && st.Mode&want == want
}
