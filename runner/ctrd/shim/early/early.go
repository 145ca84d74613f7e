// Package early exits the shim's program at once if the note of package deleted has the complete answer.
//
// Packages are initialized in the order of their import paths, each as soon as its imports are initialized ("Program initialization" in the
// language specification). This package imports almost nothing, so it is initialized before os and all packages of the shim. Only the main
// package of the program may import it.
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
