// Package reserve keeps some room on the disk, and gives it up when a removal fails because the disk is full. It must not remove
// anything else.
package reserve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
	"monopod/internal/pause"
	"monopod/runner/ctrd/trees"
)

// Who removes something needs room for it: containerd's databases write pages anew, also to note that something is gone. On
// a disk that is full to the last byte nothing could be given back. So a file takes some room from the start, which is
// given up for that, and taken again when there is enough.

const (
	// reserveFile is in the root directory.
	reserveFile = "reserve"
	reserveSize = 2 << 20
	// reserveRoom is how much must be free for the file to be made.
	reserveRoom = 4 * reserveSize
	// reserveShare is how much of it each database gets at once, before anybody else writes that; in steps, as the disk may have less.
	reserveShare = 512 << 10
	reserveStep  = 64 << 10
	// reserveEvery is how often is looked for room while there is no file.
	reserveEvery = time.Minute
)

// Reserve keeps the file. A nil one has none.
type Reserve struct {
	Path string
	// databases are patterns of the files that get a share.
	databases []string
	log       *slog.Logger
	// free is how much of the disk is.
	free func() (int64, error)
	// spent holds a token when the file was given up.
	spent chan struct{}

	mu sync.Mutex // one at a time makes it or gives it up
}

// New returns that of the containerd in this process, which is the only one whose files are known.
func New(root string, log *slog.Logger) *Reserve {
	return &Reserve{
		Path: filepath.Join(root, reserveFile), log: log, spent: make(chan struct{}, 1),
		databases: []string{filepath.Join(root, "containerd", "io.containerd.*", "meta.db"), filepath.Join(root, "containerd", "io.containerd.*", "metadata.db")},
		free: func() (int64, error) {
			var disk unix.Statfs_t
			if err := unix.Statfs(root, &disk); err != nil {
				return 0, fmt.Errorf("%s: %w", root, err)
			}
			return int64(disk.Bavail) * disk.Bsize, nil
		},
	}
}

// Keep sees to it that there is a file whenever there is room, until ctx ends. While there is one it only waits.
func (r *Reserve) Keep(ctx context.Context) {
	if r == nil {
		return
	}
	said := ""
	for {
		made, err := r.make()
		if err != nil && err.Error() != said {
			said = err.Error()
			r.log.Warn("no room is kept for the case that the disk is full", "err", err)
		}
		if !made {
			if !pause.For(ctx, reserveEvery) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.spent:
		}
		if !pause.For(ctx, reserveEvery) { // what it was given up for goes first
			return
		}
	}
}

// make makes the file unless it is there, or there is too little room for it, and says whether it is there.
func (r *Reserve) make() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, err := os.Stat(r.Path); err == nil && st.Size() == reserveSize {
		return true, nil
	}
	if free, err := r.free(); err != nil || free < reserveRoom {
		return false, err
	}
	if err := trees.RemoveFile(r.Path); err != nil { // a part of it, or something else
		return false, err
	}
	f, err := os.OpenFile(r.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = io.CopyN(f, rand.Reader, reserveSize) // nothing that the file system could make smaller
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, errors.Join(err, trees.RemoveFile(r.Path))
	}
	return true, atomicfile.SyncDir(filepath.Dir(r.Path))
}

// Spend gives the file up if an error says that the disk is full, and says whether there is a little room now that there
// was not: what failed is worth another try then. It is only for what makes room, and for what an end of something needs.
func (r *Reserve) Spend(why error) bool {
	if r == nil || !r.isFull(why) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch err := os.Remove(r.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		r.log.Warn("the room that was kept for a full disk cannot be used", "err", err)
		return false
	}
	for _, pattern := range r.databases {
		paths, _ := filepath.Glob(pattern) // it is well-formed
		for _, path := range paths {
			if err := allocate(path, reserveShare); err != nil {
				r.log.Debug("no room could be given to a database of containerd", "path", path, "err", err)
			}
		}
	}
	select {
	case r.spent <- struct{}{}:
	default:
	}
	r.log.Warn("the disk is full: room that was kept for that is used to remove what nobody needs", "bytes", reserveSize, "err", why)
	return true
}

// allocate has the holes of a file, and what comes after its end, filled with room on the disk, as much as more says. Its
// content and its size stay.
func allocate(path string, more int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var was, is unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &was); err != nil {
		return err
	}
	const block = 512
	for at := int64(0); at < was.Size+more && (is.Blocks-was.Blocks)*block < more; at += reserveStep {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, reserveStep); err != nil {
			return err
		}
		if err := unix.Fstat(int(f.Fd()), &is); err != nil {
			return err
		}
	}
	return nil
}

// isFull says that an error comes from our disk, which is full, or from a quota.
func (r *Reserve) isFull(err error) bool {
	switch classifyFull(err) {
	case quotaExceeded:
		return true
	case diskFull:
		free, unseen := r.free()
		return unseen == nil && free < reserveRoom
	case collectorFailed:
		free, unseen := r.free()
		return unseen == nil && free < reserveSize/2
	}
	return false
}

// MakingRoom does something that makes room on a full disk, or is part of an end, which that must not keep up.
func (r *Reserve) MakingRoom(f func() error) error {
	err := f()
	if r.Spend(err) {
		err = f()
	}
	return err
}
