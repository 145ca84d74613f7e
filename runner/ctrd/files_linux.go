package ctrd

import (
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/trees"
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

// removeTree unmounts everything below the paths and removes them, in one look at the mounts. It leaves alone what something
// stays mounted below: through a mount it would delete what is not ours.
func removeTree(paths ...string) error { return trees.Remove(paths...) }

// endpointPath turns unix:///path into the path.
func endpointPath(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }
