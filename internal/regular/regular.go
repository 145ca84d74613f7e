// Package regular reads files that other programs or users name or create: only regular files on file systems that store what is written to
// them, up to a size limit.
//
// A FIFO blocks the process that opens it, opening a device may have any effect, and files of the kernel look like regular ones but block
// (/proc/kmsg), never end (trace_pipe) or change something when they are read. The package must not start goroutines; therefore a file on a
// network file system whose server is down still blocks.
package regular

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// Errors of files that are not read.
var (
	ErrSpecial  = foreign.ErrSpecial
	ErrKernel   = foreign.ErrKernel
	ErrTooLarge = foreign.ErrTooLarge
)

// Open opens a file to read it. flags are added to those of open(2).
func Open(path string, flags int) (*os.File, fs.FileInfo, error) {
	place, err := foreign.At(path, flags&unix.O_NOFOLLOW)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = place.Close() }()
	return foreign.Open(place, flags&^unix.O_NOFOLLOW)
}

// ReadFile is os.ReadFile for a file of at most most bytes.
func ReadFile(path string, most int) ([]byte, error) {
	place, err := foreign.At(path, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = place.Close() }()
	return foreign.Read(place, most)
}
