package shims

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/pause"
)

// Shims of the embedded containerd lose their parent, a short-lived process of their own, as soon as they run. As a
// subreaper we get them as children, so that they do not stay as zombies where process 1 does not care.

// BecomeSubreaper makes this process the parent of shims that lose theirs.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// reapDelay is how long a zombie must have been one before it is taken: those that os/exec waits for are gone by then.
const reapDelay = 2 * time.Second

// shimComm is the start of a shim's process name, as far as the kernel keeps it.
const shimComm = "containerd-shim"

// ReapShims collects adopted shims that have ended, until ctx ends.
func ReapShims(ctx context.Context) error {
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-died:
		}
		before := ZombieShims()
		if len(before) == 0 {
			continue
		}
		if !pause.For(ctx, reapDelay) {
			return nil
		}
		for pid := range before {
			if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil {
				continue // somebody else waited for it
			}
		}
		select { // what died meanwhile is looked at again
		case died <- unix.SIGCHLD:
		default:
		}
	}
}

// ZombieShims returns our children that are ended shims.
func ZombieShims() map[int]bool {
	out := map[int]bool{}
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for s := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(s)
			if err == nil && isZombieShim(pid) {
				out[pid] = true
			}
		}
	}
	return out
}

func isZombieShim(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// pid (comm) state ...; comm may hold anything.
	_, rest, ok := strings.Cut(string(b), "(")
	end := strings.LastIndex(rest, ") ")
	return ok && end >= 0 && strings.HasPrefix(rest[:end], shimComm) && strings.HasPrefix(rest[end+2:], "Z")
}
