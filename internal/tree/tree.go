// Package tree makes files and directories a stream of tar and such a stream files and directories again, where neither can
// be trusted: the places belong to containers, whose processes change them meanwhile, and the streams may come from anywhere.
//
// What is read or written is always what a descriptor says that has been looked at before: a regular file, on a file system
// that is not made by the kernel. Nothing outside the given directory is reached, whatever links there are or come, and
// what is written in a container is written with the rights of its own process.
//
// A tree has directories, regular files and symbolic links. Their owners and times are not carried: files belong to who
// writes them. Devices, sockets and FIFOs are left out.
//
// Goroutines: none, but for the thread of (User).Do.
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

// warnings passes on what was left out, and gathers the rest in a number.
type warnings struct {
	tell func(string)
	n    int
}

// maxWarnings is how many are told one by one.
const maxWarnings = 20

func (w *warnings) addf(format string, args ...any) {
	w.n++
	if w.tell != nil && w.n <= maxWarnings {
		w.tell(fmt.Sprintf(format, args...))
	}
}

func (w *warnings) end() {
	if w.tell != nil && w.n > maxWarnings {
		w.tell(fmt.Sprintf("%d more were left out", w.n-maxWarnings))
	}
}
