// Package tree copies files and directories to a tar stream and back where neither side can be trusted: the directories belong to
// containers, whose processes change them meanwhile, and the streams come from anywhere.
//
// It reads and writes only through descriptors of files that it has checked: regular files outside pseudo file systems. It must never reach
// anything outside the given directory, whatever links exist or arrive, and writes in a container with the rights of the container's
// process.
//
// Trees consist of directories, regular files and symbolic links. Owners and times are not copied: files belong to the writer. Devices,
// sockets and FIFOs are skipped.
//
// Goroutines: none, except for the thread of (User).Do.
package tree

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

const (
	// maxDepth is how many directories may lie in each other: each takes a descriptor while it is read.
	maxDepth = 256
	// chunk is the memory for the content of files on its way.
	chunk = 32 << 10
	// maxLateModes bounds the directories that get their modes at the end.
	maxLateModes = 10_000
)

// ErrArchive is what a bad stream is.
var ErrArchive = errors.New("archive")

// Name is what a tree is called that is read from a path: its last element, "." for what only stands for the content of a directory.
func Name(p string) string {
	if p == "" || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..") || p == ".." {
		return "."
	}
	if name := path.Base(p); name != "/" {
		return name
	}
	return "."
}

// warnings forwards warnings about skipped files, and sums up those beyond maxWarnings.
type warnings struct {
	tell func(string)
	n    int
}

// maxWarnings bounds the warnings that are reported one by one.
const maxWarnings = 20

func (w *warnings) addf(format string, args ...any) {
	w.n++
	if w.tell != nil && w.n <= maxWarnings {
		w.tell(fmt.Sprintf(format, args...))
	}
}

func (w *warnings) end() {
	if w.tell != nil && w.n > maxWarnings {
		w.tell(fmt.Sprintf("%d more were skipped", w.n-maxWarnings))
	}
}
