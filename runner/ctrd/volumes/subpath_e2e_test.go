//go:build e2e

package volumes

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// envChild marks the process with a mount namespace of its own.
const envChild = "VOLUMES_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envChild+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

func TestWhatWasOpenedIsWhatIsMounted(t *testing.T) {
	volume, outside := tree(t)
	check(t, os.WriteFile(filepath.Join(volume, "a", "mark"), nil, 0o600))
	f, err := OpenBelow(volume, "a")
	check(t, err)
	defer func() { _ = f.Close() }()
	check(t, os.Rename(filepath.Join(volume, "a"), filepath.Join(volume, "elsewhere")))
	check(t, os.Symlink(outside, filepath.Join(volume, "a")))
	dir := filepath.Join(t.TempDir(), "binds")
	check(t, Bind(f, filepath.Join(dir, "0")))
	if _, err := os.Stat(filepath.Join(dir, "0", "mark")); err != nil {
		t.Error(err)
	}
	check(t, Unbind(dir))
	if _, err := os.Stat(filepath.Join(volume, "elsewhere", "mark")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the directory of the mount points is still there")
	}
}

// TestUnbindLeavesTheOriginalsMounts binds a tree with a shared mount in it.
func TestUnbindLeavesTheOriginalsMounts(t *testing.T) {
	volume, _ := tree(t)
	check(t, unix.Mount("tmpfs", volume, "tmpfs", 0, ""))
	t.Cleanup(func() { check(t, unix.Unmount(volume, unix.MNT_DETACH)) })
	check(t, unix.Mount("", volume, "", unix.MS_SHARED, ""))
	inner := filepath.Join(volume, "a", "inner")
	check(t, os.MkdirAll(inner, 0o755))
	check(t, unix.Mount("tmpfs", inner, "tmpfs", 0, ""))
	check(t, os.WriteFile(filepath.Join(inner, "mark"), nil, 0o600))
	check(t, os.WriteFile(filepath.Join(volume, "file"), []byte("x"), 0o600))
	dir := filepath.Join(t.TempDir(), "binds")
	for target, sub := range map[string]string{"0": "a", "1": "file"} {
		f, err := OpenBelow(volume, sub)
		check(t, err)
		check(t, Bind(f, filepath.Join(dir, target)))
		check(t, f.Close())
	}
	if _, err := os.Stat(filepath.Join(dir, "0", "inner", "mark")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "1")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	check(t, Unbind(dir))
	if _, err := os.Stat(filepath.Join(inner, "mark")); err != nil {
		t.Error(err)
	}
	check(t, Unbind(dir))
}
