package ctrd

import (
	"os"
	"path/filepath"
	"testing"

	"monopod/runner/ctrd/layout"
)

// TestDirectoriesAreClosedToOtherUsers has a fresh instance, and one of a version that created all directories open to all users.
func TestDirectoriesAreClosedToOtherUsers(t *testing.T) {
	for _, old := range []bool{false, true} {
		top := t.TempDir()
		c := Config{RootDirectory: filepath.Join(top, "root"), StateDirectory: filepath.Join(top, "state"), PodLogsDir: filepath.Join(top, "logs")}
		d := layout.Dirs{Root: c.RootDirectory, State: c.StateDirectory}
		modes := d.Modes()
		for dir := range modes {
			if !old {
				break
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.makeDirs(); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, dir := range []string{c.RootDirectory, c.StateDirectory} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				path := filepath.Join(dir, e.Name())
				want, ok := modes[path]
				if info, err := e.Info(); err != nil || !ok || info.Mode().Perm() != want {
					t.Errorf("%s is %v, want %v (in the table: %v)", path, info.Mode(), want, ok)
				}
				seen++
			}
		}
		if seen < 6 || old && seen != len(modes) {
			t.Errorf("%d directories, of %d", seen, len(modes))
		}
	}
}

// TestNoDirectoryOfPodsIsOpenToOtherUsers: in these are directories that all users may write to, and programs with the setuid bit.
func TestNoDirectoryOfPodsIsOpenToOtherUsers(t *testing.T) {
	d := layout.Dirs{Root: "/root", State: "/state"}
	for _, path := range []string{d.ShmDir("s"), d.EmptyDir("u", "v"), d.EphemeralDir("u"), d.VolumesDir() + "/x", d.Path("image-volumes", "s", "0"), d.SecretsDir() + "/x", d.SubPathDir("c") + "/0"} {
		closed := false
		for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
			mode, ok := d.Modes()[dir]
			closed = closed || ok && mode&0o007 == 0
		}
		if !closed {
			t.Errorf("%s is open to other users", path)
		}
	}
}
