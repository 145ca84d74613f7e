package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree creates a volume and, next to it, a directory that nothing in the volume may lead to.
func tree(t testing.TB) (volume, outside string) {
	t.Helper()
	dir := t.TempDir()
	volume, outside = filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	check(t, os.MkdirAll(filepath.Join(volume, "a", "b"), 0o755))
	check(t, os.MkdirAll(filepath.Join(outside, "secret"), 0o755))
	return volume, outside
}

func inode(t testing.TB, f *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	check(t, unix.Fstat(int(f.Fd()), &st))
	return st.Ino
}

func inodeAt(t testing.TB, path string) uint64 {
	t.Helper()
	fi, err := os.Stat(path)
	check(t, err)
	return fi.Sys().(*syscall.Stat_t).Ino
}

// TestNothingLeadsOutOfAVolume has the links of CVE-2017-1002101 and similar ones.
func TestNothingLeadsOutOfAVolume(t *testing.T) {
	volume, outside := tree(t)
	for name, target := range map[string]string{
		"absolute": outside, "relative": "../outside", "root": "/", "up": "..", "proc": "/proc/self/root",
		"sibling": volume + "2", "chain": "absolute/secret",
	} {
		check(t, os.Symlink(target, filepath.Join(volume, name)))
	}
	check(t, os.Mkdir(volume+"2", 0o755))
	for _, sub := range []string{
		"absolute", "absolute/secret", "relative", "relative/secret", "root", "root/etc", "up", "up/outside", "proc", "proc/etc",
		"sibling", "chain", "../outside", "a/../../outside", "absolute/made", "relative/made", "a/../../made",
	} {
		for name, open := range map[string]func(string, string) (*os.File, error){"open": OpenBelow, "make": MakeBelow} {
			f, err := open(volume, sub)
			if err == nil {
				t.Errorf("%s %s: opened %s", name, sub, f.Name())
				_ = f.Close()
			}
		}
	}
	for _, path := range []string{filepath.Join(outside, "made"), filepath.Join(volume, "..", "made")} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was made", path)
		}
	}
}

func TestLinksInsideAVolumeAreFollowed(t *testing.T) {
	volume, _ := tree(t)
	check(t, os.WriteFile(filepath.Join(volume, "a", "file"), nil, 0o600))
	for name, target := range map[string]string{"rel": "a/b", "up": "a/../a/b", "abs": filepath.Join(volume, "a", "b"), "file": "a/file"} {
		check(t, os.Symlink(target, filepath.Join(volume, name)))
	}
	for sub, want := range map[string]string{"rel": "a/b", "up": "a/b", "abs": "a/b", "file": "a/file", "a/b": "a/b", "a/": "a", ".": "."} {
		f, err := MakeBelow(volume, sub)
		check(t, err)
		if inode(t, f) != inodeAt(t, filepath.Join(volume, want)) {
			t.Errorf("%s is not %s", sub, want)
		}
		check(t, f.Close())
	}
}

func TestDirectoriesAreMadeLikeTheVolumesRoot(t *testing.T) {
	volume, _ := tree(t)
	check(t, os.Chmod(volume, 0o777|fs.ModeSetgid))
	check(t, os.Symlink("a", filepath.Join(volume, "link")))
	defer unix.Umask(unix.Umask(0o077))
	f, err := MakeBelow(volume, "link/new/deep")
	check(t, err)
	check(t, f.Close())
	for _, dir := range []string{"a/new", "a/new/deep"} {
		fi, err := os.Stat(filepath.Join(volume, dir))
		check(t, err)
		if got := fi.Mode(); got != fs.ModeDir|fs.ModeSetgid|0o777 {
			t.Errorf("%s has mode %v", dir, got)
		}
	}
	if fi, err := os.Stat(filepath.Join(volume, "a")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("a directory that was there has mode %v now, %v", fi.Mode(), err)
	}
}

func TestWhatIsNotThereIsNotOpened(t *testing.T) {
	volume, _ := tree(t)
	if _, err := OpenBelow(volume, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := MakeBelow(filepath.Join(volume, "none"), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	check(t, os.WriteFile(filepath.Join(volume, "file"), nil, 0o600))
	if _, err := MakeBelow(volume, "file/x"); err == nil {
		t.Error("made a directory in a file")
	}
	// Creating the target of a link would create it outside.
	check(t, os.Symlink("later", filepath.Join(volume, "dangling")))
	if _, err := MakeBelow(volume, "dangling/x"); err == nil {
		t.Error("made a directory through a dangling link")
	}
}

// TestASwapDoesNotLeadOut is CVE-2021-25741: a directory and a link are swapped continuously.
func TestASwapDoesNotLeadOut(t *testing.T) {
	volume, outside := tree(t)
	check(t, os.Symlink(outside, filepath.Join(volume, "evil")))
	check(t, os.Mkdir(filepath.Join(volume, "good"), 0o755))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "evil"), unix.AT_FDCWD, filepath.Join(volume, "good"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	opened := 0
	for range 3000 {
		f, err := MakeBelow(volume, "good/sub")
		if err != nil {
			continue
		}
		opened++
		place, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
		check(t, err)
		if in := filepath.Dir(filepath.Dir(place)); in != volume {
			t.Errorf("opened %s", place)
		}
		check(t, f.Close())
	}
	close(stop)
	<-done
	if opened == 0 {
		t.Error("never opened the directory that is there half of the time")
	}
	if _, err := os.Lstat(filepath.Join(outside, "sub")); err == nil {
		t.Error("a directory was made outside")
	}
}

func TestFilesOfAVolumeAreReadWithCare(t *testing.T) {
	volume, outside := tree(t)
	check(t, os.WriteFile(filepath.Join(outside, "secret", "file"), []byte("secret"), 0o600))
	check(t, os.WriteFile(filepath.Join(volume, "a", "file"), []byte("content"), 0o600))
	check(t, unix.Mkfifo(filepath.Join(volume, "fifo"), 0o666))
	check(t, os.Symlink("a/file", filepath.Join(volume, "inside")))
	check(t, os.Symlink("../outside/secret/file", filepath.Join(volume, "relative")))
	check(t, os.Symlink("/proc/self/fd/0", filepath.Join(volume, "magic")))
	for _, sub := range []string{"a/file", "inside", "/a/file"} {
		if text, err := ReadBelow(volume, sub, len("content")); err != nil || string(text) != "content" {
			t.Errorf("%s: %q, %v", sub, text, err)
		}
	}
	for _, sub := range []string{"relative", "magic", "fifo", "a"} {
		if text, err := ReadBelow(volume, sub, 100); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, error %v", sub, text, err)
		}
	}
	if text, err := ReadBelow(volume, "a/file", 3); err == nil {
		t.Errorf("of at most 3 bytes: %q", text)
	}
	for _, sub := range []string{"none", "a/none"} {
		if _, err := ReadBelow(volume, sub, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", sub, err)
		}
	}
}
