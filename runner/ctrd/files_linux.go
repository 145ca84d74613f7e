package ctrd

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

// shmFlags are the mount flags of a pod's /dev/shm.
const shmFlags = unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_NODEV

// openRegular opens a file for reading if it is a regular one: no link is followed, no FIFO waited for.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// isMountPoint says whether something is mounted at path.
func isMountPoint(path string) bool {
	ok, err := mountinfo.Mounted(path)
	return err == nil && ok
}

// mountTmpfs mounts a tmpfs unless there is one.
func mountTmpfs(path, options string, flags uintptr) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if isMountPoint(path) {
		return nil
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", path, err)
	}
	return nil
}

// unmountBelow unmounts everything at and below path, the innermost first.
func unmountBelow(path string) error {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	// Later mounts may lie on earlier ones.
	for _, m := range slices.Backward(infos) {
		if err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW); err == nil || errors.Is(err, unix.EINVAL) {
			continue
		}
		// Busy: somebody looks into it. It disappears with the last user.
		if err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// removeTree unmounts everything below path and removes it. It refuses while anything is mounted there: through
// a mount it would delete what is not ours.
func removeTree(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unmountBelow(path); err != nil {
		return err
	}
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("not removed: %s is still mounted", left[0].Mountpoint)
	}
	return os.RemoveAll(path)
}

// endpointPath turns unix:///path into the path.
func endpointPath(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }
