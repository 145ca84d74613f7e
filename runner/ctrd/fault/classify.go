package fault

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
)

// programNotFound matches the errors of runc and the kernel for a program that is missing or cannot be executed.
var programNotFound = regexp.MustCompile(`exec: "([^"]*)": (?:executable file not found|stat [^:]*: no such file|permission denied|is a directory)|exec (\S+): no such file`)

// classify returns the cause of an error of containerd or of the OCI runtime, which arrives as text only. It returns the zero
// Cause for an unknown error.
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

// OfTheMachine reports whether an error of containerd or of the OCI runtime is trouble of the machine, such as a full disk, and not a fault of
// the container.
func OfTheMachine(err error) bool {
	text := err.Error()
	return classify(err).Kind != cause.CommandNotFound && slices.ContainsFunc([]error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EIO}, func(e error) bool {
		return errors.Is(err, e) || strings.Contains(text, e.Error())
	})
}
