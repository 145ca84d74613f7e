package bounded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Room is what must stay free of a disk.
type Room struct {
	Bytes, Inodes int64
}

// Disk watches a file system while an image is written to it. The zero Disk is never full.
type Disk struct {
	// Dir is a directory on it.
	Dir string
	// Keep says what no image may use up of a disk of this size, where it is free: pods may be evicted then. What keepAlways says stays free in any case.
	Keep func(size Room) Room
	// look is statfs, except in tests.
	look func(dir string) (size, free Room, err error)
	// period is how often it is looked; 0: often enough.
	period time.Duration
}

// ErrFull says that a disk got too full for an image.
var ErrFull = errors.New("the disk is too full for it")

// keepAlways is a twentieth of a disk, and a gibibyte at most.
func keepAlways(size Room) Room { return Room{min(size.Bytes/20, 1<<30), size.Inodes / 50} }

// Watch returns a context that ends, with ErrFull as its cause, when too little is free. The caller must call stop.
func (d Disk) Watch(ctx context.Context) (_ context.Context, stop func()) {
	if d.Dir == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	least := d.least()
	if err := d.check(least); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		period := d.period
		if period == 0 {
			period = 100 * time.Millisecond
		}
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := d.check(least); err != nil {
					cancel(err)
				}
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

// least is what must stay free while something is written that begins now.
func (d Disk) least() Room {
	size, free, err := d.statfs()
	if err != nil {
		return Room{}
	}
	least := keepAlways(size)
	if d.Keep == nil {
		return least
	}
	if more := d.Keep(size).Bytes; free.Bytes > more {
		least.Bytes = max(least.Bytes, more)
	}
	if more := d.Keep(size).Inodes; free.Inodes > more {
		least.Inodes = max(least.Inodes, more)
	}
	return least
}

func (d Disk) check(least Room) error {
	size, free, err := d.statfs()
	if err != nil {
		return nil //nolint:nilerr // what writes there says so
	}
	if free.Bytes < least.Bytes {
		return fmt.Errorf("%w: %d MiB are free at %s, and %d must stay so: %w", ErrFull, free.Bytes>>20, d.Dir, least.Bytes>>20, errdefs.ErrResourceExhausted)
	}
	if size.Inodes > 0 && free.Inodes < least.Inodes { // some file systems have no fixed number
		return fmt.Errorf("%w: %d inodes are free at %s, and %d must stay so: %w", ErrFull, free.Inodes, d.Dir, least.Inodes, errdefs.ErrResourceExhausted)
	}
	return nil
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
