// Package reserve keeps disk space in a file, and frees it when a removal fails because the disk is full. It must not remove
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

// Removing something needs disk space: containerd's databases write new pages even for a deletion. On a completely full disk
// nothing could be removed. Therefore a file reserves some space, which is freed for that purpose and reserved again later.

const (
	// reserveFile is the name of the file in the root directory.
	reserveFile = "reserve"
	reserveSize = 2 << 20
	// reserveRoom is the free space required to create the file.
	reserveRoom = 4 * reserveSize
	// reserveShare is how much of it each database gets at once, before other writers take it; in steps, because the disk may have
	// less.
	reserveShare = 512 << 10
	reserveStep  = 64 << 10
	// reserveEvery is the interval of attempts to create a missing file.
	reserveEvery = time.Minute
)

// Reserve keeps the file. A nil Reserve has none.
type Reserve struct {
	Path string
	// databases are patterns of the database files that get a share.
	databases []string
	log       *slog.Logger
	// free returns the free disk space.
	free func() (int64, error)
	// spent holds a token after the file was removed.
	spent chan struct{}

	mu sync.Mutex // serializes creation and removal of the file
}

// New returns the reserve for the embedded containerd, whose files are known.
func New(root string, log *slog.Logger) *Reserve {
	return &Reserve{
		Path: filepath.Join(root, reserveFile), log: log, spent: make(chan struct{}, 1),
		databases: []string{filepath.Join(root, "containerd", "io.containerd.*", "meta.db"), filepath.Join(root, "containerd", "io.containerd.*", "metadata.db")},
		free: func() (int64, error) {
			var disk unix.Statfs_t
			if err := unix.Statfs(root, &disk); err != nil {
				return 0, fmt.Errorf("%s: %w", root, err)
			}
			return int64(disk.Bavail * uint64(disk.Bsize)), nil
		},
	}
}

// Keep creates the file whenever it is missing and there is space, until ctx ends.
func (r *Reserve) Keep(ctx context.Context) {
	if r == nil {
		return
	}
	said := ""
	for {
		made, err := r.make()
		if err != nil && err.Error() != said {
			said = err.Error()
			r.log.Warn("cannot reserve space for a full disk", "err", err)
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
		if !pause.For(ctx, reserveEvery) { // the removal that needed the space comes first
			return
		}
	}
}

// make creates the file unless it exists or the disk is too full, and reports whether it exists.
func (r *Reserve) make() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, err := os.Stat(r.Path); err == nil && st.Size() == reserveSize {
		return true, nil
	}
	if free, err := r.free(); err != nil || free < reserveRoom {
		return false, err
	}
	if err := trees.RemoveFile(r.Path); err != nil { // an incomplete one, or something else
		return false, err
	}
	f, err := os.OpenFile(r.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = io.CopyN(f, rand.Reader, reserveSize) // random data cannot be compressed by the file system
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, errors.Join(err, trees.RemoveFile(r.Path))
	}
	return true, atomicfile.SyncDir(filepath.Dir(r.Path))
}

// Spend removes the file if an error is caused by a full disk, and reports whether that freed space, so that a retry may succeed.
// It is only for operations that free space or end something.
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
		r.log.Warn("cannot free the space reserved for a full disk", "err", err)
		return false
	}
	for _, pattern := range r.databases {
		paths, _ := filepath.Glob(pattern) // the pattern is valid
		for _, path := range paths {
			if err := allocate(path, reserveShare); err != nil {
				r.log.Debug("cannot allocate space for a database of containerd", "path", path, "err", err)
			}
		}
	}
	select {
	case r.spent <- struct{}{}:
	default:
	}
	r.log.Warn("the disk is full: freed the reserved space for removals", "bytes", reserveSize, "err", why)
	return true
}

// allocate allocates disk space for the holes of a file and for up to more bytes after its end. Content and size stay.
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

// isFull reports whether an error is caused by our full disk, or by a quota.
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

// MakingRoom calls f, which frees disk space or ends something, and retries it with the freed reserve.
func (r *Reserve) MakingRoom(f func() error) error {
	err := f()
	if r.Spend(err) {
		err = f()
	}
	return err
}
