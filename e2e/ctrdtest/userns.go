//go:build e2e

package ctrdtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ShippedRunc returns the runc that comes with monopod.
func ShippedRunc(t *testing.T) string {
	t.Helper()
	root, err := moduleRoot()
	Check(t, err)
	path := filepath.Join(root, ".cache", "runc")
	if out, err := exec.Command("make", "-C", root, path).CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", path, err, out)
	}
	return path
}

// Exists reports whether a path exists.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
