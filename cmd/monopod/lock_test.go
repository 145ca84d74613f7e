package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestALockIsWaitedForAsLongAsAProcessTakesToDie(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := takeLocks(lockPatience, dir)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(lockPatience/5, first.release)
	second, err := takeLocks(lockPatience, dir)
	if err != nil {
		t.Fatalf("the holder was about to go: %v", err)
	}
	defer second.release()
	if _, err := takeLocks(0, dir); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("two hold the same lock, or the second does not hear who does: %v", err)
	}
}
