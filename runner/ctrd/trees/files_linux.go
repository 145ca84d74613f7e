package trees

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
)

// ShmFlags are the mount flags of a pod's /dev/shm.
const ShmFlags = unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_NODEV

// IsMountPoint says whether something is mounted at path.
func IsMountPoint(path string) bool {
	ok, err := mountinfo.Mounted(path)
	return err == nil && ok
}

// MountTmpfs mounts a tmpfs unless there is one.
func MountTmpfs(path, options string, flags uintptr) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if IsMountPoint(path) {
		return nil
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", path, err)
	}
	return nil
}

// Names lists a directory, hidden entries left out; one that cannot be read is empty.
func Names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// RemoveFile removes a file that may be gone already.
func RemoveFile(path string) error {
	err := os.Remove(path)
	if info, serr := os.Lstat(path); err != nil && serr == nil && info.IsDir() {
		return Remove(path) // somebody's damage, which must not keep a pod from going
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ReadableJSON says that a file can be read and is JSON, or is missing: other runtimes may have other files.
func ReadableJSON(path string) bool {
	data, err := atomicfile.Read(path, atomicfile.MaxState)
	if err != nil {
		return !errors.Is(err, atomicfile.ErrDamaged)
	}
	return json.Valid(data)
}
