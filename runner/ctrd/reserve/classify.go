package reserve

import (
	"strings"

	"golang.org/x/sys/unix"
)

// fullness is why a disk accepts no data.
type fullness int

const (
	notFull fullness = iota
	// quotaExceeded is for the quota of a project or user.
	quotaExceeded
	// diskFull is for a file system, but also for inotify watches and cgroups, for which the kernel uses the same error.
	diskFull
	// collectorFailed is a failed garbage collection, for which containerd gives no reason.
	collectorFailed
)

// classifyFull classifies an error that containerd may return as text only.
func classifyFull(err error) fullness {
	if err == nil {
		return notFull
	}
	text := err.Error()
	switch {
	case strings.Contains(text, unix.EDQUOT.Error()):
		return quotaExceeded
	case strings.Contains(text, unix.ENOSPC.Error()):
		return diskFull
	case strings.Contains(text, "gc failed"):
		return collectorFailed
	}
	return notFull
}
