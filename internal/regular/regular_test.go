package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is not a file with content is refused at once: none of these blocks, and none is read.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("content"), 0o600))
	must(os.WriteFile(at("empty"), nil, 0o600))
	must(unix.Mkfifo(at("fifo"), 0o600))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	defer func() { _ = l.Close() }()
	for link, to := range map[string]string{
		"to-file": "file", "to-fifo": "fifo", "to-zero": "/dev/zero", "to-tty": "/dev/tty", "to-kmsg": "/proc/kmsg", "to-status": "/proc/self/status",
		"to-sys": "/sys/kernel/mm/transparent_hugepage/enabled", "to-nothing": "nothing", "loop": "loop",
	} {
		must(os.Symlink(to, at(link)))
	}
	for name, want := range map[string]error{
		"file": nil, "empty": nil, "to-file": nil,
		"fifo": ErrSpecial, "socket": ErrSpecial, "to-fifo": ErrSpecial, "to-zero": ErrSpecial, "to-tty": ErrSpecial, ".": ErrSpecial,
		"to-status": ErrKernel, "to-nothing": fs.ErrNotExist, "loop": unix.ELOOP,
	} {
		data, err := ReadFile(at(name), 7)
		if !errors.Is(err, want) || err == nil && name != "empty" && string(data) != "content" {
			t.Errorf("%s: %q, %v; want %v", name, data, err, want)
		}
	}
	for _, name := range []string{"to-kmsg", "to-sys"} { // not all may open the first, not all machines have the second
		if data, err := ReadFile(at(name), 7); err == nil {
			t.Errorf("%s: %q", name, data)
		}
	}
	if _, err := ReadFile(at("file"), 6); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file that is too large: %v", err)
	}
}
