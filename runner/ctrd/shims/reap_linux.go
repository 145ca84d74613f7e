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

// Shims of the embedded containerd lose their parent, a short-lived process, as soon as they run. As a subreaper this process
// adopts them, so that they do not stay zombies if process 1 does not reap.

// BecomeSubreaper makes this process adopt orphaned shims.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// reapDelay is how old a zombie must be before it is reaped: os/exec has reaped its own by then.
const reapDelay = 2 * time.Second

// shimComm is the process name of a shim, truncated by the kernel.
const shimComm = "containerd-shim"

// ReapShims reaps adopted shims that have ended, until ctx ends.
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
				continue // it was reaped elsewhere
			}
		}
		select { // drops signals that arrived meanwhile
		case died <- unix.SIGCHLD:
		default:
		}
	}
}

// ZombieShims returns children of this process that are ended shims.
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
	// The format is "pid (comm) state ..."; comm may contain any character.
	_, rest, ok := strings.Cut(string(b), "(")
	end := strings.LastIndex(rest, ") ")
	return ok && end >= 0 && strings.HasPrefix(rest[:end], shimComm) && strings.HasPrefix(rest[end+2:], "Z")
}
