package dirlock

import (
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
