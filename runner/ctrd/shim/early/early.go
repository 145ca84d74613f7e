// Package early ends a shim's program at once when all that it is asked is in the note of package deleted.
//
// Packages are initialized one by one: the first by import path of those whose imports all are ("Program initialization" in
// the language's specification). This one imports next to nothing, so its turn is before that of os, and of all that a shim
// is made of. Only the main package of the program may import it.
package early

import (
	"syscall"

	"monopod/runner/ctrd/shim/early/deleted"
)

func init() { //nolint:gochecknoinits // main comes after all else
	if deleted.Answer() {
		syscall.Exit(0)
	}
}
