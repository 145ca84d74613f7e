package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheEndOfATerminationMessageIsKept(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "message"), filepath.Join(dir, "messages", "id")
	for name, c := range map[string]struct{ text, want string }{
		"short":                     {"told\n", "told\n"},
		"long":                      {strings.Repeat("x", 5000) + "end", strings.Repeat("x", maxMessage-3) + "end"},
		"as long as what is read":   {strings.Repeat("y", maxMessage), strings.Repeat("y", maxMessage)},
		"shorter than the last one": {"z", "z"},
	} {
		if err := os.WriteFile(from, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := keepMessage(from, to); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(to); err != nil || string(got) != c.want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestNoMessageHasNoCopy(t *testing.T) {
	dir := t.TempDir()
	empty, fifo, link := filepath.Join(dir, "empty"), filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	full := filepath.Join(dir, "full")
	for path, text := range map[string]string{empty: "", full: "text"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(full, link); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "messages", "id")
	for _, from := range []string{empty, fifo, link, filepath.Join(dir, "none")} {
		_ = keepMessage(from, to)
		if _, err := os.Lstat(to); err == nil {
			t.Errorf("%s has a copy", from)
		}
	}
	// The pod was removed: its directory must not be created again.
	if err := keepMessage(full, filepath.Join(dir, "pod", "messages", "id")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "pod")); err == nil {
		t.Error("the directory of a pod that is gone is made")
	}
}
