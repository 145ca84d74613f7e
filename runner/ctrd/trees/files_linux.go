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

// IsMountPoint reports whether something is mounted at path.
func IsMountPoint(path string) bool {
	ok, err := mountinfo.Mounted(path)
	return err == nil && ok
}

// MountTmpfs mounts a tmpfs unless path is a mount point.
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

// Names lists a directory without hidden entries; an unreadable one is empty.
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

// RemoveFile removes a file, which may be missing.
func RemoveFile(path string) error {
	err := os.Remove(path)
	if info, serr := os.Lstat(path); err != nil && serr == nil && info.IsDir() {
		return Remove(path) // a directory in its place must not block the removal of a pod
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ReadableJSON reports whether a file is valid JSON, or missing: OCI runtimes have different files.
func ReadableJSON(path string) bool {
	data, err := atomicfile.Read(path, atomicfile.MaxState)
	if err != nil {
		return !errors.Is(err, atomicfile.ErrDamaged)
	}
	return json.Valid(data)
}
