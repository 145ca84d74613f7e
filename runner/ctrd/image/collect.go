package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"monopod/runner/ctrd/image/gc"
)

// Collection is what Collect goes by.
type Collection struct {
	Policy gc.Policy
	// Needs returns what must stay: references and digests. It is asked again before each removal. When it cannot tell, nothing goes.
	Needs func() (refs, digests []string, err error)
	// Used returns the digests of images that there are containers with. When it cannot tell, nothing goes.
	Used func() (map[string]bool, error)
	// Disk looks at the file system of the images.
	Disk func() (gc.Disk, error)
	// Bytes is how much is to be freed, or 0: as much as Policy says.
	Bytes int64
}

// Collected is what has become of a Collection.
type Collected struct {
	// Removed are the names of what went, an image each.
	Removed []string
	// Freed is how many bytes are available now that were not, Short how many are missing.
	Freed, Short int64
	// Disk is how it looks now.
	Disk gc.Disk
	// Next is when time alone makes another image go; zero: never.
	Next time.Time
}

// Collect removes images that nobody needs as long as the disk is too full or they are too old. While neither is so it
// does no more than to look at the disk. What cannot be removed is no reason not to remove the others.
func (s *Store) Collect(ctx context.Context, c Collection) (out Collected, err error) {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	if c.Bytes == 0 && c.Policy.Disabled() {
		return out, nil
	}
	if out.Disk, err = c.Disk(); err != nil {
		return out, fmt.Errorf("file system of the images: %w", err)
	}
	if out.Disk.Capacity <= 0 {
		return out, ErrNoCapacity
	}
	begin := out.Disk.Available
	full := func() bool { return c.Bytes > 0 || out.Disk.Used() >= c.Policy.High && c.Policy.High < 100 }
	if !full() && c.Policy.MaxAge <= 0 {
		return out, nil
	}
	failed, errs := map[string]bool{}, []error(nil)
	for ctx.Err() == nil {
		plan, names, err := s.plan(ctx, c, out, begin, failed)
		if err != nil {
			return out, errors.Join(append(errs, err)...)
		}
		out.Short, out.Next = plan.Short, plan.Next
		if len(plan.Remove) == 0 {
			break
		}
		for _, x := range plan.Remove {
			switch err := s.Remove(ctx, x.Digest, func() bool { return s.needs(ctx, c, x.Digest) }); {
			case err == nil:
				s.cfg.Log.Info("image removed", "image", names[x.Digest], "bytes", x.Size, "old", x.Old)
				out.Removed = append(out.Removed, names[x.Digest])
			case !errors.Is(err, ErrNeeded):
				errs = append(errs, err)
			}
			failed[x.Digest] = true // not again, come what may
		}
		if out.Disk, err = c.Disk(); err != nil {
			return out, fmt.Errorf("file system of the images: %w", err)
		}
		out.Freed = out.Disk.Available - begin
	}
	if out.Short > 0 {
		errs = append(errs, s.dropParts(ctx, c, begin, &out))
	}
	return out, errors.Join(errs...)
}

// ErrNoCapacity says that the file system of the images has no size.
var ErrNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// plan asks what goes, of what may go and has not been tried.
func (s *Store) plan(ctx context.Context, c Collection, now Collected, begin int64, tried map[string]bool) (gc.Result, map[string]string, error) {
	infos, err := s.List(ctx)
	if err != nil {
		return gc.Result{}, nil, err
	}
	used, err := c.Used()
	if err != nil {
		return gc.Result{}, nil, err
	}
	needs := map[string]bool{}
	refs, digests, err := c.Needs()
	if err != nil {
		return gc.Result{}, nil, err
	}
	for _, dig := range digests {
		needs[dig] = true
	}
	targets, err := s.Targets(ctx, refs)
	if err != nil {
		return gc.Result{}, nil, err
	}
	for dig := range targets {
		needs[dig] = true
	}
	names := map[string]string{}
	var images []gc.Image
	for i := range infos {
		info := &infos[i]
		names[info.Digest] = cmp.Or(strings.Join(info.Names, " "), info.Digest)
		if tried[info.Digest] {
			continue
		}
		if len(info.Pins)+len(info.Archives) > 0 {
			needs[info.Digest] = true
		}
		images = append(images, gc.Image{
			Digest: info.Digest, Size: info.Own, FirstSeen: info.FirstSeen, LastUsed: info.LastUsed, InUse: used[info.Digest] || info.UsedNow,
		})
	}
	if c.Bytes > 0 {
		return c.Policy.Reclaim(time.Now(), images, c.Bytes-(now.Disk.Available-begin), needs), names, nil
	}
	return c.Policy.Plan(time.Now(), images, now.Disk, needs), names, nil
}

// needs says that somebody needs an image at this moment. When that cannot be seen, somebody does.
func (s *Store) needs(ctx context.Context, c Collection, dig string) bool {
	if used, err := c.Used(); err != nil || used[dig] {
		return true
	}
	refs, digests, err := c.Needs()
	if err != nil || slices.Contains(digests, dig) {
		return true
	}
	targets, err := s.Targets(ctx, refs)
	return err != nil || len(targets[dig]) > 0
}

// dropParts gives up what has come of pulls that failed, as the last resort.
func (s *Store) dropParts(ctx context.Context, c Collection, begin int64, out *Collected) error {
	if err := s.DropPartial(ctx); err != nil {
		return err
	}
	disk, err := c.Disk()
	if err != nil {
		return fmt.Errorf("file system of the images: %w", err)
	}
	out.Short = max(0, out.Short-(disk.Available-out.Disk.Available))
	out.Disk, out.Freed = disk, disk.Available-begin
	return nil
}
