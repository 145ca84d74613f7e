package reserve

import (
	"strings"

	"golang.org/x/sys/unix"
)

// fullness is what an error says of a disk.
type fullness int

const (
	notFull fullness = iota
	// quotaExceeded: that of a project or user.
	quotaExceeded
	// diskFull: of some file system, or of watches or cgroups, for which the kernel has the same words.
	diskFull
	// collectorFailed: containerd could not collect garbage, and does not say why.
	collectorFailed
)

// classifyFull returns what an error, which containerd returns often as a text only, says of a disk.
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
