package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadNeverWaitsAndSaysWhatIsWrong: whatever is in the place of a file, Read returns at once, and callers can tell a file that is missing
// from one that is damaged.
func TestReadNeverWaitsAndSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(path string) error
		want error
	}{
		"a file":          {func(p string) error { return Write(p, []byte("0123456789"), 0o600) }, nil},
		"nothing":         {func(string) error { return nil }, fs.ErrNotExist},
		"a longer file":   {func(p string) error { return os.WriteFile(p, make([]byte, 11), 0o600) }, ErrDamaged},
		"a directory":     {func(p string) error { return os.Mkdir(p, 0o700) }, ErrDamaged},
		"a FIFO":          {func(p string) error { return unix.Mkfifo(p, 0o600) }, ErrDamaged},
		"a link":          {func(p string) error { return os.Symlink("/etc/hostname", p) }, ErrDamaged},
		"a link to it":    {func(p string) error { return os.Symlink(p, p) }, ErrDamaged},
		"a dangling link": {func(p string) error { return os.Symlink("/none", p) }, ErrDamaged},
		"a socket":        {func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := c.put(path); err != nil {
				t.Fatal(err)
			}
			data, err := Read(path, 10)
			if !errors.Is(err, c.want) || c.want == nil && string(data) != "0123456789" {
				t.Errorf("%q, %v, want %v", data, err, c.want)
			}
			if err := Write(path, []byte("new"), 0o600); err != nil {
				t.Fatalf("it cannot be written again: %v", err)
			}
			if data, err := Read(path, 10); err != nil || string(data) != "new" {
				t.Errorf("after a write: %q, %v", data, err)
			}
		})
	}
}

func TestSetAsideReplacesWhatWasSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for range 2 {
		if err := os.MkdirAll(filepath.Join(path, "in"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := SetAside(path, path+".damaged"); err != nil {
			t.Fatal(err)
		}
	}
	if got := files(t, filepath.Dir(path)); got != "f.damaged" {
		t.Errorf("left: %s", got)
	}
	if err := SetAside(path, path+".damaged"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

// TestALockIsMadeWhateverIsInItsPlace also checks that an existing lock file is opened, not replaced.
func TestALockIsMadeWhateverIsInItsPlace(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"nothing":         func(string) error { return nil },
		"a file":          func(p string) error { return os.WriteFile(p, []byte("1"), 0o600) },
		"a directory":     func(p string) error { return os.MkdirAll(filepath.Join(p, "in"), 0o700) },
		"a dangling link": func(p string) error { return os.Symlink("/none/such", p) },
		"a FIFO":          func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			f, err := OpenLock(path, 0o600)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			a, _ := f.Stat()
			if b, err := os.Lstat(path); err != nil || !os.SameFile(a, b) {
				t.Errorf("%s: it is another file: %v", name, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := OpenLock(filepath.Join(t.TempDir(), "none", "lock"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}
