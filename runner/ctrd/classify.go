package ctrd

import (
	"cmp"
	"errors"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
)

// programNotFound is how runc and the kernel say that a program does not exist, or cannot be executed.
var programNotFound = regexp.MustCompile(`exec: "([^"]*)": (?:executable file not found|stat [^:]*: no such file|permission denied|is a directory)|exec (\S+): no such file`)

// classify returns the cause of an error of containerd or of the OCI runtime, which arrives here as a text only. The zero
// Cause: it is no error with a cause of its own.
func classify(err error) cause.Cause {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if m := programNotFound.FindStringSubmatch(text); m != nil {
		c := cause.Cause{Kind: cause.CommandNotFound, Program: cmp.Or(m[1], m[2])}
		if strings.Contains(text, "permission denied") {
			c.Fault = cause.NotExecutable
		}
		return c
	}
	if errors.Is(err, unix.ENOSPC) || strings.Contains(text, unix.ENOSPC.Error()) {
		return cause.Cause{Kind: cause.NoSpace}
	}
	return cause.Cause{}
}

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
