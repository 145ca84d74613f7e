package ctrd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTemporaryFilesOfKilledProcessesAreRemoved(t *testing.T) {
	r, _ := diskRuntime(t)
	r.cfg.StateDirectory, r.cfg.Network.OwnConfDir = t.TempDir(), t.TempDir()
	root, state := r.cfg.RootDirectory, r.cfg.StateDirectory
	now := time.Now()
	left := []string{
		filepath.Join(root, ".tmp-1"), filepath.Join(root, "volumes", ".tmp-1"), filepath.Join(r.cfg.Network.OwnConfDir, ".tmp-1"),
		filepath.Join(state, "exits", ".exit-1"), filepath.Join(state, "exits", ".id.json"), filepath.Join(state, "pause", ".output-1"),
		filepath.Join(r.contentDir(), "heal-1"),
	}
	stay := []string{
		filepath.Join(root, "workloads.json"), filepath.Join(state, "exits", "id.json"), filepath.Join(state, "pause", "id"),
		filepath.Join(r.contentDir(), "blobs", "sha256", "heal-1"), filepath.Join(state, "ns", "id", ".tmp-1"),
	}
	for _, path := range append(left, stay...) {
		write(t, path, 1)
	}
	if err := r.cleanTemps(now); err != nil { // some of them may be being written
		t.Error(err)
	}
	for _, path := range left {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is removed while it is written: %v", path, err)
		}
	}
	if err := r.cleanTemps(now.Add(2 * time.Minute)); err != nil {
		t.Error(err)
	}
	for _, path := range left {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", strings.TrimPrefix(path, root))
		}
	}
	for _, path := range stay {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestACgroupIsRemovedWithAllBelow(t *testing.T) {
	top := t.TempDir()
	for _, below := range []string{"", "a", "a/b/c"} {
		dir := filepath.Join(top, "pod")
		if err := os.MkdirAll(filepath.Join(dir, below), 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it is gone
			if err := removeCgroupTree(dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("with %q in it, it is still there", below)
		}
	}
	// What cannot be removed, as when there are processes in it, is an error.
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroupTree(top); err == nil {
		t.Error("said to be removed")
	}
}
