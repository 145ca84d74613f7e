package dirlock

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestALockIsWaitedForAsLongAsAProcessTakesToDie(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := TakeLocks(LockPatience, dir)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(LockPatience/5, first.Release)
	second, err := TakeLocks(LockPatience, dir)
	if err != nil {
		t.Fatalf("the holder was about to go: %v", err)
	}
	defer second.Release()
	if _, err := TakeLocks(0, dir); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("two hold the same lock, or the second does not hear who does: %v", err)
	}
}

// TestALockIsGivenBackThoughAChildHasItStill: a process has all open files between its fork and its exec.
func TestALockIsGivenBackThoughAChildHasItStill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held, err := TakeLocks(0, dir)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(held[0].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(child) }()
	held.Release()
	next, err := TakeLocks(0, dir)
	if err != nil {
		t.Fatal(err)
	}
	next.Release()
}

func TestAllDirectoriesAreLockedOrNone(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "made", "for it"), t.TempDir()
	held, err := TakeLocks(0, second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TakeLocks(0, first, second); !IsHeld(err) || !strings.Contains(err.Error(), second) {
		t.Errorf("the second one is held: %v", err)
	}
	held.Release()
	both, err := TakeLocks(0, first, second)
	if err != nil {
		t.Fatalf("the first one is still locked: %v", err)
	}
	both.Release()
	file := filepath.Join(first, LockName)
	if _, err := TakeLocks(0, file); err == nil || IsHeld(err) {
		t.Errorf("a file in place of a directory: %v", err)
	}
}

// TestOnlyTheOwnerMayOpenALock: whoever may open a file may lock it, also one that an earlier version created for all users.
func TestOnlyTheOwnerMayOpenALock(t *testing.T) {
	t.Parallel()
	fresh, old := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(old, LockName), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	held, err := TakeLocks(0, fresh, old)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	for _, dir := range []string{fresh, old} {
		if info, err := os.Stat(filepath.Join(dir, LockName)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

func TestStrangersThatHoldALockAreFound(t *testing.T) {
	t.Parallel()
	const own = 1000
	for name, c := range map[string]struct {
		users []int
		want  bool
	}{
		"nobody is seen":           {nil, false},
		"another user":             {[]int{65534}, true},
		"root":                     {[]int{0}, false},
		"our user":                 {[]int{own}, false},
		"another user beside ours": {[]int{65534, own}, false},
	} {
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for i, user := range c.users {
			process := filepath.Join(dir, "proc", strconv.Itoa(i+1))
			for _, err := range []error{
				os.MkdirAll(filepath.Join(process, "fd"), 0o700),
				os.Symlink(f.Name(), filepath.Join(process, "fd", "3")),
				os.WriteFile(filepath.Join(process, "status"), fmt.Appendf(nil, "Name:\tx\nUid:\t%d\t%d\t%d\t%d\n", own, user, user, user), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := heldByStrangers(usersOf(filepath.Join(dir, "proc"), f), own); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
