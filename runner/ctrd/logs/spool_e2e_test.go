//go:build e2e

package logs

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// If the state directory is full, the spool is not used until there is space again.
func TestOutputIsCopiedWhileTheStateDirectoryIsFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small tmpfs")
	}
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	var said syncBuffer
	c := NewCollector(Config{Dir: state, Log: slog.New(slog.NewTextHandler(&said, nil))})
	defer func() { _ = c.Close() }()
	path := filepath.Join(dir, "0.log")
	o, _ := attach(t, c, "a", path)
	ballast := filepath.Join(state, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the directory is not full")
	}
	const n = 20000
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "stdout F line %d\n", i)
	}
	put(t, o, strings.ReplaceAll(want.String(), "stdout F ", "")+"ha")
	eventually(t, "all is written", func() bool { return strings.Count(content(t, path), "\n") == n })
	spoolSize := func() int64 {
		st, err := os.Stat(o.Name() + spoolSuffix)
		if err != nil {
			return -1
		}
		return st.Size()
	}
	if got := spoolSize(); got != 0 {
		t.Errorf("%d bytes are in the spool, which has no room", got)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	put(t, o, "lf\nof the next")
	eventually(t, "the end of the line is written", func() bool { return strings.HasSuffix(content(t, path), " half\n") })
	put(t, o, " line\nnow")
	eventually(t, "the spool is used", func() bool { return spoolSize() > 0 })
	finish(t, c, "a")
	want.WriteString("stdout F half\nstdout F of the next line\nstdout P now\n")
	if got := plain(t, path); got != want.String() {
		t.Errorf("got %d bytes, want %d, or they differ; the end is %q", len(got), want.Len(), got[max(0, len(got)-100):])
	}
	if n := strings.Count(said.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings: %s", n, said.String())
	}
}
