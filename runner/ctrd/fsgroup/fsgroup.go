// Package fsgroup changes the group of a volume's files to the pod's fsGroup, by the rules of the kubelet's volume package. It
// must not know pods, or decide which volumes are changed; hostPath volumes never are.
//
// It has no goroutines.
package fsgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
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
	readWrite  fs.FileMode = 0o660
	searchable fs.FileMode = 0o110
)

// Apply changes the group of a directory tree: files become readable and writable for it, directories also searchable, with the
// setgid bit so that new files inherit the group. Of symlinks only the group changes. Containers may write to the tree
// concurrently: links are not followed out of it, and vanished files are skipped.
func Apply(dir string, o Owner) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if o.OnRootMismatch && o.matches(info) {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// The root comes last, so that an interrupted walk is repeated.
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != "." {
			err = o.own(root, path, d)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err == nil {
		err = o.own(root, ".", fs.FileInfoToDirEntry(info))
	}
	if err != nil {
		return fmt.Errorf("give to fsGroup %d: %w", o.GID, err)
	}
	return nil
}

// own changes one file.
func (o Owner) own(root *os.Root, path string, d fs.DirEntry) error {
	if err := root.Lchown(path, -1, int(o.GID)); err != nil {
		return err
	}
	if d.Type()&fs.ModeSymlink != 0 {
		return nil
	}
	info, err := root.Lstat(path)
	if err != nil {
		return err
	}
	return root.Chmod(path, (info.Mode()&^fs.ModeType)|bits(info.IsDir()))
}

// bits returns the minimum mode of a file or directory.
func bits(dir bool) fs.FileMode {
	if dir {
		return readWrite | searchable | fs.ModeSetgid
	}
	return readWrite
}

// matches reports whether a volume's root needs no change.
func (o Owner) matches(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	want := bits(true)
	return ok && int64(st.Gid) == o.GID && info.Mode()&want == want
}
