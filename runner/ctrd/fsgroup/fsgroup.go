// Package fsgroup gives the files of a volume to the pod's fsGroup.
//
// It owns that one walk, by the rules of kubelet's volume package. It must not know pods, nor which volumes are to
// be walked: hostPath volumes never are. It has no goroutines.
package fsgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Owner says to whom the files of a volume belong.
type Owner struct {
	// GID is the pod's fsGroup.
	GID int64
	// OnRootMismatch spares the walk when the volume's root has the right group and mode already.
	OnRootMismatch bool
}

// Bits that the group gets, besides what is there.
const (
	readWrite  fs.FileMode = 0o660
	searchable fs.FileMode = 0o110
)

// Apply gives dir and everything in it to the group: files become readable and writable for it, directories also
// searchable, with the setgid bit so that new files follow. Symlinks get the group only. Containers may write to
// the directory meanwhile: no link is followed out of it, and what vanishes is left out.
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
	// The root comes last: until it matches, a walk that was cut off is done again.
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

// bits are what a file or directory must have at least.
func bits(dir bool) fs.FileMode {
	if dir {
		return readWrite | searchable | fs.ModeSetgid
	}
	return readWrite
}

// matches says that a volume's root needs no change.
func (o Owner) matches(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	want := bits(true)
	return ok && int64(st.Gid) == o.GID && info.Mode()&want == want
}
