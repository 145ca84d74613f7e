package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestACgroupIsRemovedWithAllBelow(t *testing.T) {
	top := t.TempDir()
	for _, below := range []string{"", "a", "a/b/c"} {
		dir := filepath.Join(top, "pod")
		if err := os.MkdirAll(filepath.Join(dir, below), 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it is gone
			if err := RemoveTree(dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("with %q in it, it is still there", below)
		}
	}
	// A cgroup that cannot be removed, for example with processes in it, is an error.
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(top); err == nil {
		t.Error("said to be removed")
	}
}
