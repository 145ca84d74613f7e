//go:build e2e

package file

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
}

func mount(t *testing.T, source, dir, kind string, flags uintptr) {
	t.Helper()
	watchertest.Must(t, unix.Mount(source, dir, kind, flags, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// The directory under a mount point is there and empty when the file system is gone: that must not read as "no pods".
func TestAFileSystemThatGoesAwayRemovesNothing(t *testing.T) {
	needRoot(t)
	tests := []struct {
		name string
		// path is what is configured, below the mount point.
		path string
		put  func(h watchertest.Hand)
	}{
		{"the mount point itself", "", func(h watchertest.Hand) { mount(h.T, "tmpfs", h.At, "tmpfs", 0) }},
		{"a directory in it", "manifests", func(h watchertest.Hand) { mount(h.T, "tmpfs", h.At, "tmpfs", 0) }},
		{"a bind mount", "", func(h watchertest.Hand) {
			from := h.T.TempDir()
			mount(h.T, from, h.At, "", unix.MS_BIND)
		}},
		{"a single file in it", "pods.yaml", func(h watchertest.Hand) { mount(h.T, "tmpfs", h.At, "tmpfs", 0) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			point := filepath.Join(t.TempDir(), "usb")
			watchertest.Must(t, os.Mkdir(point, 0o755))
			tt.put(watchertest.Hand{T: t, At: point})
			path := filepath.Join(point, tt.path)
			file := path
			if !endsLikeManifest(path) {
				watchertest.Must(t, os.MkdirAll(path, 0o755))
				file = filepath.Join(path, "x.yaml")
			}
			watchertest.Write(t, file, "pod x v1\n")
			s := standWith(t, Config{Path: path, CheckFrequency: 5 * time.Millisecond}, unhurried())
			s.Until("x", func(set watcher.Set) bool { return len(set.Pods) == 1 })
			watchertest.Must(t, unix.Unmount(point, unix.MNT_DETACH))
			s.State(path, model.InputUnreachable)
			unseen(300 * time.Millisecond) // many looks, and longer than any grace of the stand but that for new directories
			if set, _ := s.Last(); len(set.Pods) != 1 || watchertest.StateOf(set, path) != model.InputUnreachable {
				t.Fatalf("pods %q, reports %+v", watchertest.Content(set.Pods), set.Inputs)
			}
			tt.put(watchertest.Hand{T: t, At: point})
			watchertest.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			watchertest.Write(t, file, "pod x v2\n")
			s.Until("x v2", func(set watcher.Set) bool {
				return len(set.Pods) == 1 && set.Pods[0].Object.Spec.Containers[0].Image == "v2" && watchertest.StateOf(set, path) == model.InputAccepted
			})
			watchertest.Write(t, file, "pod x v3\n") // the new directory is watched: no look is due before this one
			s.Until("x v3", func(set watcher.Set) bool { return set.Pods[0].Object.Spec.Containers[0].Image == "v3" })
			s.NeverWithout("x")
		})
	}
}

// inotify does not report a mount over the directory; the periodic scan finds it.
func TestAMountOverTheDirectoryIsFollowed(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "manifests")
	watchertest.Must(t, os.Mkdir(dir, 0o755))
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	s := standWith(t, Config{Path: dir, CheckFrequency: 5 * time.Millisecond}, unhurried())
	s.Pods("x=v1@x.yaml")
	from := t.TempDir()
	watchertest.Write(t, filepath.Join(from, "x.yaml"), "pod x v2\n")
	mount(t, from, dir, "", unix.MS_BIND)
	s.Pods("x=v2@x.yaml")
	s.NeverWithout("x")
}
