// Package trees removes directory trees with mounts in them. It must not remove anything through a mount, because what is mounted
// belongs to others.
//
// The mount table is long, since each pod has several mounts: remove several directories in one call, which reads it once.
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

// Remove unmounts everything at and below the paths and removes them; missing paths are not an error. A path that keeps a mount is
// not removed, and is an error.
func Remove(paths ...string) error { return kernel().remove(paths) }

// Unmount unmounts everything at and below the paths, innermost first.
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

// unmountBelow unmounts what the table has at and below the paths. sure is set if each mount was removed by a call of its own, so
// that none is left.
func (t table) unmountBelow(paths []string) (sure bool, err error) {
	mounts, err := t.below(paths)
	if err != nil {
		return false, err
	}
	sure = true
	var errs []error
	for _, m := range slices.Backward(mounts) { // later mounts may be on top of earlier ones
		err := t.unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			// The mount is in use. It disappears with its last user.
			err = t.unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL): // it was unmounted together with another
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

// within reports whether a path is equal to or below another.
func within(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/')
}
