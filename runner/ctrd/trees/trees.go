// Package trees removes directories that something may be mounted in. Nothing is ever removed through a mount: what is
// behind one is somebody else's.
//
// Reading the mount table costs as much as there are mounts on the machine, and each pod has some: whoever removes several
// directories removes them in one call, which reads it once.
package trees

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// table is the mount table of the kernel.
type table struct {
	read    func(mountinfo.FilterFunc) ([]*mountinfo.Info, error)
	unmount func(path string, flags int) error
}

func kernel() table { return table{read: mountinfo.GetMounts, unmount: unix.Unmount} }

// Remove unmounts everything at and below the paths and removes them; those that are missing are fine. A path at or below
// which something stays mounted is left alone, and an error.
func Remove(paths ...string) error { return kernel().remove(paths) }

// Unmount unmounts everything at and below the paths, the innermost first.
func Unmount(paths ...string) error {
	_, err := kernel().unmountBelow(paths)
	return err
}

func (t table) remove(paths []string) error {
	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(paths) == 0 {
		return nil
	}
	sure, err := t.unmountBelow(paths)
	var left []*mountinfo.Info
	if !sure {
		var rerr error
		if left, rerr = t.below(paths); rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	errs := []error{err}
	for _, path := range paths {
		if i := slices.IndexFunc(left, func(m *mountinfo.Info) bool { return within(m.Mountpoint, path) }); i >= 0 {
			errs = append(errs, fmt.Errorf("not removed: %s is still mounted", left[i].Mountpoint))
			continue
		}
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// unmountBelow says in sure that nothing of what the table had is mounted any more: each mount that it had there was taken
// off by a call of its own.
func (t table) unmountBelow(paths []string) (sure bool, err error) {
	mounts, err := t.below(paths)
	if err != nil {
		return false, err
	}
	sure = true
	var errs []error
	for _, m := range slices.Backward(mounts) { // later mounts may lie on earlier ones
		err := t.unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			// Busy: somebody looks into it. It disappears with the last user.
			err = t.unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL): // it went with another one
			sure = false
		default:
			sure = false
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return sure, errors.Join(errs...)
}

// below returns what is mounted at and below the paths.
func (t table) below(paths []string) ([]*mountinfo.Info, error) {
	mounts, err := t.read(func(m *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(paths, func(path string) bool { return within(m.Mountpoint, path) }), false
	})
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return mounts, nil
}

// within says that a path is another one or below it.
func within(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/')
}
