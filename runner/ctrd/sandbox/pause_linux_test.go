package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
)

// TestAProcessNamespaceIsRemovedByARuntimeThatExists: a pod must be removable if the file that names the OCI runtime is truncated,
// or the runtime was removed.
func TestAProcessNamespaceIsRemovedByARuntimeThatExists(t *testing.T) {
	dir := t.TempDir()
	runc, file := filepath.Join(dir, "runc"), filepath.Join(dir, "runtime")
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(runc, "#!/bin/sh\n", 0o700)
	write(file, runc, 0o600)
	if got := pauseRuntime(file, "other"); got != runc {
		t.Errorf("with the runtime in its place: %q", got)
	}
	for way, damage := range damagetest.Ways() {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		write(file, runc, 0o600)
		if err := damage(file); err != nil {
			t.Fatal(err)
		}
		if got := pauseRuntime(file, "other"); got != "other" {
			t.Errorf("%s: %q", way, got)
		}
	}
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	write(file, filepath.Join(dir, "removed"), 0o600)
	if got := pauseRuntime(file, "other"); got != "other" {
		t.Errorf("with the runtime removed: %q", got)
	}
}

// TestAPidThatCannotBeReadIsNone checks that the process namespace is then created again.
func TestAPidThatCannotBeReadIsNone(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), pidFile)
		if err := errors.Join(os.WriteFile(path, []byte("1\n"), 0o600), spoil(path)); err != nil {
			t.Fatal(err)
		}
		if pid, err := readPid(path); err == nil && name != "truncated" || pid < 0 {
			t.Errorf("%s: %d, %v", name, pid, err)
		}
	}
}
