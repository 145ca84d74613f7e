//go:build e2e

package podfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// newDir returns mounted files.
func newDir(t *testing.T, f Files) Dir {
	t.Helper()
	d := Dir{Path: filepath.Join(t.TempDir(), "files"), Owner: 4242}
	t.Cleanup(func() { check(t, unix.Unmount(d.Path, unix.MNT_DETACH)) })
	check(t, d.Write(f))
	return d
}

// fill writes to a file until an error.
func fill(t *testing.T, path string, limit int) (written int, err error) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	check(t, err)
	defer func() { _ = f.Close() }()
	for block := make([]byte, 64<<10); written < limit; {
		n, err := f.Write(block)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return string(b)
}

func TestAContainerCanFillItsFilesAndNothingElse(t *testing.T) {
	f := Files{Hosts: "hosts\n", Hostname: "name\n", ResolvConf: "resolv\n"}
	d := newDir(t, f)
	mine, err := d.NewMessage("mine")
	check(t, err)
	theirs, err := d.NewMessage("theirs")
	check(t, err)
	check(t, os.WriteFile(theirs, []byte("short"), 0))
	for _, path := range []string{mine, d.Hosts(), d.Hostname(), d.ResolvConf()} {
		st, err := os.Stat(path)
		check(t, err)
		if s := st.Sys().(*syscall.Stat_t); s.Uid != 4242 || s.Gid != 4242 || path == mine && st.Mode().Perm() != 0o666 {
			t.Errorf("%s belongs to %d:%d and has mode %v", path, s.Uid, s.Gid, st.Mode())
		}
	}
	for _, full := range []string{mine, d.Hosts(), d.Hostname()} {
		if n, err := fill(t, full, 8*room); !errors.Is(err, unix.ENOSPC) || n > room {
			t.Errorf("%s takes %d bytes: %v", full, n, err)
		}
		f.Hosts += "192.0.2.1 more\n"
		check(t, d.WriteHosts(f))
		if text(t, d.Hosts()) != f.Hosts || text(t, d.Hostname()) == "" || text(t, theirs) != "short" {
			t.Errorf("after %s: hosts %q, message %q", full, text(t, d.Hosts()), text(t, theirs))
		}
	}
	check(t, d.Write(f))
	if text(t, d.Hostname()) != "name\n" || text(t, d.ResolvConf()) != "resolv\n" {
		t.Errorf("hostname %q, resolv.conf %q", text(t, d.Hostname()), text(t, d.ResolvConf()))
	}
	// What is filled is no full disk, for which others would have to make room.
	_, _ = fill(t, mine, 8*room)
	long := f
	long.Hosts = strings.Repeat("x", 4*room)
	check(t, d.Write(long)) // it grows with what is written by us
	if text(t, d.Hosts()) != long.Hosts {
		t.Error("a long hosts file is cut off")
	}
	if err := unix.Setxattr(mine, "user.a", make([]byte, 60<<10), 0); err == nil {
		for i := range 2 * maxInodes * 1024 / (60 << 10) {
			if err = unix.Setxattr(mine, "user.a"+string(rune('a'+i)), make([]byte, 60<<10), 0); err != nil {
				break
			}
		}
		if err == nil {
			t.Error("extended attributes have no limit")
		}
	}
}
