package nat

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// missing recognizes ENOENT, which the library wraps as text.
func missing(err error) bool { return is(err, unix.ENOENT) }

// is reports whether an error is an errno, or says so in the words of the kernel.
func is(err error, e unix.Errno) bool {
	return errors.Is(err, e) || err != nil && strings.Contains(err.Error(), e.Error())
}
