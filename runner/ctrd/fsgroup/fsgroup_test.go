package fsgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes a volume: dir (0700) with file (0600), link to a file outside, and the file outside (0600).
func tree(t *testing.T) (dir, outside string) {
	t.Helper()
	top := t.TempDir()
	dir, outside = filepath.Join(top, "volume"), filepath.Join(top, "outside")
	for _, err := range []error{
		os.Mkdir(dir, 0o700),
		os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.WriteFile(filepath.Join(dir, "sub", "file"), nil, 0o600),
		os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, outside
}

func modeOf(t *testing.T, path string) (fs.FileMode, int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode() &^ fs.ModeType, int(info.Sys().(*syscall.Stat_t).Gid)
}

// aGroup returns a group that this process may give files to.
func aGroup() int {
	if os.Geteuid() == 0 {
		return 4321
	}
	return os.Getgid()
}

func TestTheWholeVolumeGoesToTheGroup(t *testing.T) {
	dir, outside := tree(t)
	gid := aGroup()
	if err := Apply(t.Context(), dir, Owner{GID: int64(gid)}); err != nil {
		t.Fatal(err)
	}
	const ofDir = 0o770 | fs.ModeSetgid
	for path, want := range map[string]fs.FileMode{dir: ofDir, filepath.Join(dir, "sub"): ofDir, filepath.Join(dir, "sub", "file"): 0o660} {
		if mode, g := modeOf(t, path); mode != want || g != gid {
			t.Errorf("%s is %v of group %d, want %v of %d", path, mode, g, want, gid)
		}
	}
	if _, g := modeOf(t, filepath.Join(dir, "link")); g != gid {
		t.Errorf("the link has group %d", g)
	}
	if mode, g := modeOf(t, outside); mode != 0o600 || (os.Geteuid() == 0 && g == gid) {
		t.Errorf("the file behind the link became %v of group %d", mode, g)
	}
}

func TestTheStickyBitStays(t *testing.T) {
	for _, onMismatch := range []bool{false, true} {
		dir, _ := tree(t)
		sub := filepath.Join(dir, "sub")
		for _, d := range []string{dir, sub} {
			if err := os.Chmod(d, 0o700|fs.ModeSticky); err != nil {
				t.Fatal(err)
			}
		}
		if err := Apply(t.Context(), dir, Owner{GID: int64(aGroup()), OnRootMismatch: onMismatch}); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dir, sub} {
			if mode, _ := modeOf(t, d); mode != 0o770|fs.ModeSetgid|fs.ModeSticky {
				t.Errorf("%s is %v", d, mode)
			}
		}
	}
}

func TestOnRootMismatchLooksAtTheRootOnly(t *testing.T) {
	dir, _ := tree(t)
	o := Owner{GID: int64(aGroup()), OnRootMismatch: true}
	if err := Apply(t.Context(), dir, o); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sub", "file")
	if mode, _ := modeOf(t, file); mode != 0o660 {
		t.Fatalf("with another root the file became %v", mode)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Apply(t.Context(), dir, o); err != nil {
		t.Fatal(err)
	}
	if mode, _ := modeOf(t, file); mode != 0o600 {
		t.Errorf("with a matching root the file became %v", mode)
	}
	o.OnRootMismatch = false
	if err := Apply(t.Context(), dir, o); err != nil {
		t.Fatal(err)
	}
	if mode, _ := modeOf(t, file); mode != 0o660 {
		t.Errorf("with the policy Always the file became %v", mode)
	}
}

// TestAContainerThatSwapsADirectoryForAFIFOBlocksNothing swaps them as often as it can, while the group is changed again and again.
func TestAContainerThatSwapsADirectoryForAFIFOBlocksNothing(t *testing.T) {
	dir, _ := tree(t)
	sub, fifo := filepath.Join(dir, "sub"), filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		var errs []error
		for range 300 {
			errs = append(errs, Apply(t.Context(), dir, Owner{GID: int64(aGroup())}))
		}
		ended <- errors.Join(errs...)
	}()
	deadline := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		case <-deadline:
			t.Fatal("the walk is blocked")
		default:
			if err := unix.Renameat2(unix.AT_FDCWD, sub, unix.AT_FDCWD, fifo, unix.RENAME_EXCHANGE); err != nil {
				t.Fatal(err)
			}
		}
	}
}
