//go:build e2e

package watcher

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
}

func mount(t *testing.T, source, dir, kind string, flags uintptr) {
	t.Helper()
	must(t, unix.Mount(source, dir, kind, flags, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// The directory under a mount point is there and empty when the file system is gone: that must not read as "no pods".
func TestAFileSystemThatGoesAwayRemovesNothing(t *testing.T) {
	needRoot(t)
	tests := []struct {
		name string
		// path is what is configured, below the mount point.
		path string
		put  func(h hand)
	}{
		{"the mount point itself", "", func(h hand) { mount(h.t, "tmpfs", h.at, "tmpfs", 0) }},
		{"a directory in it", "manifests", func(h hand) { mount(h.t, "tmpfs", h.at, "tmpfs", 0) }},
		{"a bind mount", "", func(h hand) {
			from := h.t.TempDir()
			mount(h.t, from, h.at, "", unix.MS_BIND)
		}},
		{"a single file in it", "pods.yaml", func(h hand) { mount(h.t, "tmpfs", h.at, "tmpfs", 0) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			point := filepath.Join(t.TempDir(), "usb")
			must(t, os.Mkdir(point, 0o755))
			tt.put(hand{t, point})
			path := filepath.Join(point, tt.path)
			file := path
			if !endsLikeManifest(path) {
				must(t, os.MkdirAll(path, 0o755))
				file = filepath.Join(path, "x.yaml")
			}
			write(t, file, "pod x v1\n")
			s := standWith(t, FileConfig{Path: path, CheckFrequency: 5 * time.Millisecond}, unhurried())
			s.until("x", func(set Set) bool { return len(set.Pods) == 1 })
			must(t, unix.Unmount(point, unix.MNT_DETACH))
			s.state(path, Unreachable)
			unseen(300 * time.Millisecond) // many looks, and longer than any grace of the stand but that for new directories
			if set, _ := s.last(); len(set.Pods) != 1 || stateOf(set, path) != Unreachable {
				t.Fatalf("pods %q, reports %+v", content(set.Pods), set.Reports)
			}
			tt.put(hand{t, point})
			must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			write(t, file, "pod x v2\n")
			s.until("x v2", func(set Set) bool {
				return len(set.Pods) == 1 && set.Pods[0].Object.Spec.Containers[0].Image == "v2" && stateOf(set, path) == Accepted
			})
			write(t, file, "pod x v3\n") // the new directory is watched: no look is due before this one
			s.until("x v3", func(set Set) bool { return set.Pods[0].Object.Spec.Containers[0].Image == "v3" })
			s.neverWithout("x")
		})
	}
}

// A source is told nothing by inotify about a mount over its directory; the periodic read notices.
func TestAMountOverTheDirectoryIsFollowed(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o755))
	write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	s := standWith(t, FileConfig{Path: dir, CheckFrequency: 5 * time.Millisecond}, unhurried())
	s.pods("x=v1@x.yaml")
	from := t.TempDir()
	write(t, filepath.Join(from, "x.yaml"), "pod x v2\n")
	mount(t, from, dir, "", unix.MS_BIND)
	s.pods("x=v2@x.yaml")
	s.neverWithout("x")
}
