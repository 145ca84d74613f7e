//go:build e2e

package confine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/runner/ctrd/confine"
)

// TestRelabel: all of a volume gets the label, and nothing outside of it. The attribute can be set without SELinux, too.
func TestRelabel(t *testing.T) {
	dir := t.TempDir()
	volume, outside := filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(volume, "sub"), 0o755))
	for _, path := range []string{outside, filepath.Join(volume, "sub", "file")} {
		ctrdtest.Check(t, os.WriteFile(path, nil, 0o600))
	}
	ctrdtest.Check(t, os.Symlink(outside, filepath.Join(volume, "link")))
	ctrdtest.Check(t, unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600))
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	ctrdtest.Check(t, confine.Relabel(t.Context(), volume, label))
	for _, name := range []string{".", "sub", "sub/file", "link", "fifo"} {
		if got, err := labelOf(filepath.Join(volume, name)); got != label || err != nil {
			t.Errorf("%s has %q: %v", name, got, err)
		}
	}
	if got, err := labelOf(outside); !errors.Is(err, unix.ENODATA) {
		t.Errorf("what a link leads to has %q: %v", got, err)
	}
	ctrdtest.Check(t, confine.Relabel(t.Context(), outside, label))
	if got, err := labelOf(outside); got != label || err != nil {
		t.Errorf("a file has %q: %v", got, err)
	}
}

func labelOf(path string) (string, error) {
	b := make([]byte, 256)
	n, err := unix.Lgetxattr(path, confine.SelinuxXattr, b)
	return string(b[:max(n, 0)]), err
}
