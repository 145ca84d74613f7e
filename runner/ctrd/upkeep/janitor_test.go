package upkeep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/layout"
)

func TestTemporaryFilesOfKilledProcessesAreRemoved(t *testing.T) {
	root, state := t.TempDir(), t.TempDir()
	r := &Janitor{Dirs: layout.Dirs{Root: root, State: state}, CNIConfDir: t.TempDir()}
	now := time.Now()
	left := []string{
		filepath.Join(root, ".tmp-1"), filepath.Join(root, "volumes", ".tmp-1"), filepath.Join(r.CNIConfDir, ".tmp-1"),
		filepath.Join(state, "exits", ".exit-1"), filepath.Join(state, "exits", ".id.json"),
		filepath.Join(r.Dirs.ContentDir(), "heal-1"),
	}
	stay := []string{
		filepath.Join(root, "workloads.json"), filepath.Join(state, "exits", "id.json"), filepath.Join(state, "pause", "id"),
		filepath.Join(r.Dirs.ContentDir(), "blobs", "sha256", "heal-1"), filepath.Join(state, "ns", "id", ".tmp-1"),
	}
	for _, path := range append(left, stay...) {
		dirtest.Write(t, path, 1)
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
