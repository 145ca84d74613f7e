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

// Room is room on a disk.
type Room struct {
	Bytes, Inodes int64
}

// Disk watches a file system while an image is written to it. The zero Disk is never full.
type Disk struct {
	// Dir is a directory on it.
	Dir string
	// Keep returns what pods of a disk of this size are evicted below. Nil: none are.
	Keep func(size Room) Room
	// look is statfs, except in tests.
	look func(dir string) (size, free Room, err error)
}

// ErrFull is the cause of a context of Watch that ended because of the disk.
var ErrFull = errors.New("the disk is too full for it")

const (
	// always is what no image takes of a disk with more free: a twentieth, and this many bytes at most.
	always = 1 << 30
	// margin is how much can be written between two checks of the disk.
	margin = 256 << 20
)

// Watch returns a context that ends, with ErrFull as its cause, when too little is free: less than pods are evicted below, or than always, unless so little
// was free before. The caller must call stop.
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

// Cause returns why work that Watch has ended failed, and err if that was not it.
func Cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrFull) {
		return cause
	}
	return err
}

// least returns what must stay free while something is written that begins now.
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

// floor returns what stays of what is free: more than the first of the levels, of which the highest comes first, that was not reached before. The margin above it
// shrinks as free gets close to it, and below all of them a half stays, so that a small image is never refused.
func floor(free, margin int64, levels ...int64) int64 {
	slices.Sort(levels)
	for _, level := range slices.Backward(levels) {
		if free > level {
			return level + min(margin, (free-level)/2)
		}
	}
	return free / 2
}

// pause returns how long the disk need not be checked when so many bytes are left: what writes them all takes longer.
func pause(left int64) time.Duration {
	const perMillisecond = 4 << 20
	return time.Duration(min(max(left/perMillisecond, 2), 100)) * time.Millisecond
}

// check returns how many bytes are left to be written.
func (d Disk) check(least Room) (left int64, err error) {
	size, free, err := d.statfs()
	if err != nil {
		return 0, nil //nolint:nilerr // what writes there says so
	}
	if free.Bytes < least.Bytes {
		return 0, fmt.Errorf("%w: %d MiB are free at %s, and %d must stay so: %w", ErrFull, free.Bytes>>20, d.Dir, least.Bytes>>20, errdefs.ErrResourceExhausted)
	}
	if size.Inodes > 0 && free.Inodes < least.Inodes { // some file systems have no fixed number
		return 0, fmt.Errorf("%w: %d inodes are free at %s, and %d must stay so: %w", ErrFull, free.Inodes, d.Dir, least.Inodes, errdefs.ErrResourceExhausted)
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
	return Room{int64(st.Blocks) * st.Bsize, int64(st.Files)}, Room{int64(st.Bavail) * st.Bsize, int64(st.Ffree)}, nil
}
