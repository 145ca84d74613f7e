package setup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMountsAreFoundByTheirPath(t *testing.T) {
	t.Parallel()
	all, err := mountsBelow("/")
	if err != nil || !slices.Contains(all, "/proc") {
		t.Errorf("%v, %v", all, err)
	}
	if got := unescape(`/a\040b\134`); got != `/a b\` {
		t.Error(got)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if below, err := mountsBelow(dir); err != nil || len(below) > 0 {
		t.Errorf("%v, %v", below, err)
	}
	if err := removeDirectory(dir, []string{filepath.Join(dir, "x", "y")}); err != nil {
		t.Error(err)
	}
}

func TestWhatIsConfiguredThroughALinkStaysWhenADirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, elsewhere := filepath.Join(dir, "root"), filepath.Join(dir, "elsewhere")
	for _, d := range []string{"root/images/deep", "root/other", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"preload": "root/images/deep", "link": "root", "root/seccomp": "../elsewhere", "root/stale": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	// The root directory is a symbolic link; a preload directory in it is configured through another link, and a link in it points outside.
	if err := removeDirectory(filepath.Join(dir, "link"), []string{"", filepath.Join(dir, "preload"), filepath.Join(dir, "link", "seccomp")}); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{"root/images/deep": true, "root/seccomp": true, "elsewhere": true, "root/other": false, "root/stale": false, "link": true} {
		if _, err := os.Lstat(filepath.Join(dir, path)); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := removeDirectory(filepath.Join(dir, "link"), []string{elsewhere}); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{root, filepath.Join(dir, "link")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if err := removeDirectory(root, nil); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}
