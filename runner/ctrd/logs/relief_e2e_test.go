//go:build e2e

package logs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FIFREEZE and FITHAW of linux/fs.h.
const (
	freeze = 0xc0045877
	thaw   = 0xc0045878
)

// A frozen file system blocks every write.
func TestAFrozenDiskStopsNoContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a disk")
	}
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"truncate", "-s", "32M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	defer func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(disk, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	d, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	frozen := false
	change := func(request uint) {
		if err := unix.IoctlSetInt(int(d.Fd()), request, 0); err != nil {
			t.Errorf("request %#x: %v", request, err)
		}
		frozen = request == freeze
	}
	defer func() {
		if frozen {
			change(thaw)
		}
	}()
	hung(t, c, path, func() { change(freeze) }, func() { change(thaw) })
	checkReported(t, content(t, path))
}
