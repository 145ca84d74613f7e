package bounded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Room is an amount of disk space.
type Room struct {
	Bytes, Inodes int64
}

// Disk watches a file system while an image is written to it. The zero Disk is never full.
type Disk struct {
	// Dir is a directory on it.
	Dir string
	// Keep returns the free space below which pods are evicted on a disk of this size; nil: never.
	Keep func(size Room) Room
	// look calls statfs; tests replace it.
	look func(dir string) (size, free Room, err error)
}

// ErrFull is the cause of a context that Watch has ended because of the disk.
var ErrFull = errors.New("the disk is too full for it")

const (
	// always is the space that images never use on a disk with more free space: a twentieth, at most this.
	always = 1 << 30
	// margin is how much may be written between two checks of the disk.
	margin = 256 << 20
)

// Watch returns a context that ends with ErrFull as its cause when too little space is free: less than the eviction threshold, or
// than always, unless that was so before. The caller must call stop.
func (d Disk) Watch(ctx context.Context) (_ context.Context, stop func()) {
	if d.Dir == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	least := d.least()
	var watching sync.WaitGroup
	watching.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				left, err := d.check(least)
				if err != nil {
					cancel(err)
				}
				timer.Reset(pause(left))
			}
		}
	})
	return ctx, func() { cancel(nil); watching.Wait() }
}

// Guard is for a writer that knows the size of each file. It returns a function that reports why a file of so many bytes must not be written
// now: too little would remain free, by the levels of Watch.
func (d Disk) Guard() func(bytes int64) error {
	if d.Dir == "" {
		return func(int64) error { return nil }
	}
	least := d.least()
	return func(bytes int64) error {
		_, err := d.check(Room{Bytes: least.Bytes + bytes, Inodes: least.Inodes})
		return err
	}
}

// Cause returns ErrFull if Watch has ended ctx, else err.
func Cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrFull) {
		return cause
	}
	return err
}

// least returns the space that must stay free during a write that starts now.
func (d Disk) least() Room {
	size, free, err := d.statfs()
	if err != nil {
		return Room{}
	}
	var keep Room
	if d.Keep != nil {
		keep = d.Keep(size)
	}
	return Room{
		Bytes:  floor(free.Bytes, min(margin, size.Bytes/50), keep.Bytes, min(size.Bytes/20, always)),
		Inodes: floor(free.Inodes, size.Inodes/100, keep.Inodes, size.Inodes/50),
	}
}

// floor returns how much of the free space must stay free: the highest of the levels, which are in descending order, that free
// exceeds. The margin above it shrinks as free approaches it; below all levels half of the space may be used, so that a small
// image is never refused.
func floor(free, margin int64, levels ...int64) int64 {
	slices.Sort(levels)
	for _, level := range slices.Backward(levels) {
		if free > level {
			return level + min(margin, (free-level)/2)
		}
	}
	return free / 2
}

// pause returns the time until the next check when so many bytes are left, which is less than writing them takes.
func pause(left int64) time.Duration {
	const perMillisecond = 4 << 20
	return time.Duration(min(max(left/perMillisecond, 2), 100)) * time.Millisecond
}

// check returns how many bytes may still be written.
func (d Disk) check(least Room) (left int64, err error) {
	size, free, err := d.statfs()
	if err != nil {
		return 0, nil //nolint:nilerr // the writer reports the error
	}
	if free.Bytes < least.Bytes {
		return 0, fmt.Errorf("%w: %d MiB are free at %s, and %d must remain free: %w", ErrFull, free.Bytes>>20, d.Dir, least.Bytes>>20, errdefs.ErrResourceExhausted)
	}
	if size.Inodes > 0 && free.Inodes < least.Inodes { // 0: the file system has no fixed number
		return 0, fmt.Errorf("%w: %d inodes are free at %s, and %d must remain free: %w", ErrFull, free.Inodes, d.Dir, least.Inodes, errdefs.ErrResourceExhausted)
	}
	return free.Bytes - least.Bytes, nil
}

func (d Disk) statfs() (size, free Room, err error) {
	if d.look != nil {
		return d.look(d.Dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.Dir, &st); err != nil {
		return Room{}, Room{}, err
	}
	return Room{int64(st.Blocks * uint64(st.Bsize)), int64(st.Files)}, Room{int64(st.Bavail * uint64(st.Bsize)), int64(st.Ffree)}, nil
}
