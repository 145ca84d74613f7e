package device

import (
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"monopod/runner/spec"
)

// All lists the devices of the machine, without those on other file systems (terminals, shared memory).
func All(root string) []spec.Device {
	var out []spec.Device
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has vanished
		}
		if d.IsDir() {
			if skipDevices(path) {
				return filepath.SkipDir
			}
			return nil
		}
		if dev, ok := At(path); ok {
			out = append(out, dev)
		}
		return nil
	})
	return out
}

// skipDevices reports whether each container has its own device at a path.
func skipDevices(path string) bool {
	switch path {
	case "/dev/pts", "/dev/shm", "/dev/fd", "/dev/mqueue", "/dev/.lxc", "/dev/.lxd-mounts", "/dev/.udev":
		return true
	}
	return false
}

// At returns the device at a path; false for anything else, and for the console.
func At(path string) (spec.Device, bool) {
	var st unix.Stat_t
	if path == "/dev/console" || unix.Lstat(path, &st) != nil {
		return spec.Device{}, false
	}
	kind := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		kind = "b"
	case unix.S_IFCHR:
		kind = "c"
	default:
		return spec.Device{}, false
	}
	return spec.Device{
		Path: path, Type: kind,
		Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)),
		FileMode: st.Mode &^ unix.S_IFMT, UID: st.Uid, GID: st.Gid,
	}, true
}
