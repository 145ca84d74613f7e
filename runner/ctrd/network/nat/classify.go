package nat

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// missing reports whether an error is ENOENT, which the library returns as text.
func missing(err error) bool { return is(err, unix.ENOENT) }

// is reports whether an error is an errno, as a value or as the text of the kernel.
func is(err error, e unix.Errno) bool {
	return errors.Is(err, e) || err != nil && strings.Contains(err.Error(), e.Error())
}
