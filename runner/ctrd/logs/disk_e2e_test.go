//go:build e2e

package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that is really full accepts part of a batch; even then, the file contains only complete lines.
func TestAFullDiskTearsNoLine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small tmpfs")
	}
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCollector(t, filepath.Join(dir, "fifos"))
	path := filepath.Join(disk, "0.log")
	o, _ := attach(t, c, "a", path)
	const n = 20000
	put(t, o, strings.Repeat(strings.Repeat("x", 99)+"\n", n)) // 3 MB with its prefixes
	eventually(t, "the disk is full", func() bool { return c.Lost("a") > 0 })
	eventually(t, "every line is written or counted", func() bool {
		return uint64(strings.Count(content(t, path), " stdout F "))+c.Lost("a") == n
	})
	for line := range strings.Lines(plain(t, path)) {
		if line != "stdout F "+strings.Repeat("x", 99)+"\n" && !strings.HasPrefix(line, "stderr F monopod: ") {
			t.Fatalf("torn line %q", line)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	put(t, o, "room again\n")
	finish(t, c, "a")
	got := plain(t, path)
	if !strings.HasSuffix(got, ": no space left on device\nstdout F room again\n") {
		t.Errorf("ends in %q", got[max(0, len(got)-200):])
	}
	missing := 0
	for line := range strings.Lines(got) {
		var m int
		if _, err := fmt.Sscanf(line, "stderr F monopod: %d lines of output are missing here: ", &m); err == nil {
			missing += m
		}
	}
	if have := strings.Count(got, "stdout F x"); have+missing != n {
		t.Errorf("%d lines and %d missing ones, of %d", have, missing, n)
	}
}
