package setup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/dirlock"
	"monopod/internal/program"
	"monopod/internal/testfiles"
)

func TestMountsAreFoundByTheirPath(t *testing.T) {
	t.Parallel()
	all, err := mountsBelow("/")
	if err != nil || !slices.Contains(all, "/proc") {
		t.Errorf("%v, %v", all, err)
	}
	if got := unescape(`/a\040b\134`); got != `/a b\` {
		t.Error(got)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if below, err := mountsBelow(dir); err != nil || len(below) > 0 {
		t.Errorf("%v, %v", below, err)
	}
	if err := removeDirectory(dir, []string{filepath.Join(dir, "x", "y")}); err != nil {
		t.Error(err)
	}
}

func TestWhatIsConfiguredThroughALinkStaysWhenADirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, elsewhere := filepath.Join(dir, "root"), filepath.Join(dir, "elsewhere")
	for _, d := range []string{"root/images/deep", "root/other", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"preload": "root/images/deep", "link": "root", "root/seccomp": "../elsewhere", "root/stale": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	// The root directory is a symbolic link; a preload directory in it is configured through another link, and a link in it points outside.
	if err := removeDirectory(filepath.Join(dir, "link"), []string{"", filepath.Join(dir, "preload"), filepath.Join(dir, "link", "seccomp")}); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{"root/images/deep": true, "root/seccomp": true, "elsewhere": true, "root/other": false, "root/stale": false, "link": true} {
		if _, err := os.Lstat(filepath.Join(dir, path)); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := removeDirectory(filepath.Join(dir, "link"), []string{elsewhere}); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{root, filepath.Join(dir, "link")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if err := removeDirectory(root, nil); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}

func TestTheProgramIsReplacedWhereItIsInstalled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, _ := clitest.StandInHost(t, dir, true)
	p := Commands{Program: &program.Program{Host: h}}
	to := filepath.Join(dir, "new", "bin", "monopod")
	for _, version := range []string{"the first", "the second"} {
		exe := filepath.Join(dir, "download", "monopod")
		testfiles.Write(t, exe, version)
		if got, err := p.place(to); err != nil || got != to || clitest.ReadFile(t, to) != version {
			t.Errorf("%s: %s, %v", version, got, err)
		}
		if got, err := p.place(exe); err != nil || got != exe || clitest.ReadFile(t, exe) != version {
			t.Errorf("%s, onto itself: %s, %v", version, got, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("beside the program: %v, %v", left, err)
	}
	if info, err := os.Stat(to); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v: %v", err, info)
	}
	p.Host, _ = clitest.StandInHost(t, dir, false)
	if got, err := p.place(filepath.Join(dir, "elsewhere")); err != nil || got != filepath.Join(dir, "download", "monopod") {
		t.Errorf("a plain build is not copied: %s, %v", got, err)
	}
}

func TestALockFileStaysWhileSomebodyHoldsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "subnets.lock")
	if err := removeUnlocked(path); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if err := removeUnlocked(path); err != nil || !exists(path) {
		t.Errorf("held: %v, there: %v", err, exists(path))
	}
	_ = f.Close()
	if err := removeUnlocked(path); err != nil || exists(path) {
		t.Errorf("free: %v, there: %v", err, exists(path))
	}
}

// TestOnlyAnotherProcessIsAskedToStop: what is written in a lock file may be damaged, or our own.
func TestOnlyAnotherProcessIsAskedToStop(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"4711\n": 4711, "": 0, "x": 0, "1": 0, "0": 0, "-4711": 0, strconv.Itoa(os.Getpid()): 0} {
		dir := t.TempDir()
		testfiles.Write(t, filepath.Join(dir, dirlock.LockName), text)
		if got := lockHolder(dir); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := lockHolder(t.TempDir()); got != 0 {
		t.Errorf("without a file: %d", got)
	}
}
