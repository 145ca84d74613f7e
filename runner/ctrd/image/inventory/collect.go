package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
)

// Collect removes unused images while the disk is too full, or they are too old. Otherwise it only measures the disk. An image that cannot be
// removed does not keep it from removing others.
func (v *Inventory) Collect(ctx context.Context, c image.Collection) (out image.Collected, err error) {
	v.collecting.Lock()
	defer v.collecting.Unlock()
	if c.Bytes == 0 && c.Policy.Disabled() {
		return out, nil
	}
	if out.Disk, err = c.Disk(); err != nil {
		return out, fmt.Errorf("file system of the images: %w", err)
	}
	if out.Disk.Capacity <= 0 {
		return out, image.ErrNoCapacity
	}
	begin := out.Disk.Available
	full := func() bool { return c.Bytes > 0 || out.Disk.Used() >= c.Policy.High && c.Policy.High < 100 }
	if !full() && c.Policy.MaxAge <= 0 {
		return out, nil
	}
	tried, errs := map[string]bool{}, []error(nil)
	for ctx.Err() == nil {
		plan, names, err := v.plan(ctx, c, out, begin, tried)
		if err != nil {
			return out, errors.Join(append(errs, err)...)
		}
		out.Short, out.Next = plan.Short, plan.Next
		if len(plan.Remove) == 0 {
			break
		}
		for _, x := range plan.Remove {
			switch err := v.Local.Remove(ctx, x.Digest, func() bool { return v.needs(ctx, c, x.Digest) }); {
			case err == nil:
				v.Log.Info("image removed", "image", names[x.Digest], "bytes", x.Size, "old", x.Old)
				out.Removed = append(out.Removed, names[x.Digest])
			case !errors.Is(err, image.ErrNeeded):
				errs = append(errs, err)
			}
			tried[x.Digest] = true // once only, whatever the result
		}
		if out.Disk, err = c.Disk(); err != nil {
			return out, fmt.Errorf("file system of the images: %w", err)
		}
		out.Freed = out.Disk.Available - begin
	}
	if out.Short > 0 {
		errs = append(errs, v.dropPartial(ctx, c, begin, &out))
	}
	return out, errors.Join(errs...)
}

// plan selects the images to remove among those that were not tried yet, and returns the names of all images.
func (v *Inventory) plan(ctx context.Context, c image.Collection, now image.Collected, begin int64, tried map[string]bool) (gc.Result, map[string]string, error) {
	infos, err := v.List(ctx)
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
	targets, err := v.Targets(ctx, refs)
	if err != nil {
		return gc.Result{}, nil, err
	}
	for dig := range targets {
		needs[dig] = true
	}
	names := map[string]string{}
	var all []gc.Image
	for i := range infos {
		info := &infos[i]
		names[info.Digest] = cmp.Or(strings.Join(info.Names, " "), info.Digest)
		if tried[info.Digest] {
			continue
		}
		if len(info.Pins)+len(info.Archives) > 0 {
			needs[info.Digest] = true
		}
		all = append(all, gc.Image{
			Digest: info.Digest, Size: info.Own, FirstSeen: info.FirstSeen, LastUsed: info.LastUsed, InUse: used[info.Digest] || info.UsedNow,
		})
	}
	if c.Bytes > 0 {
		return c.Policy.Reclaim(time.Now(), all, c.Bytes-(now.Disk.Available-begin), needs), names, nil
	}
	return c.Policy.Plan(time.Now(), all, now.Disk, needs), names, nil
}

// needs reports whether an image is needed now, or that is unknown.
func (v *Inventory) needs(ctx context.Context, c image.Collection, dig string) bool {
	if used, err := c.Used(); err != nil || used[dig] {
		return true
	}
	refs, digests, err := c.Needs()
	if err != nil || slices.Contains(digests, dig) {
		return true
	}
	targets, err := v.Targets(ctx, refs)
	return err != nil || len(targets[dig]) > 0
}

// dropPartial removes the content of failed pulls, as the last resort.
func (v *Inventory) dropPartial(ctx context.Context, c image.Collection, begin int64, out *image.Collected) error {
	if err := v.DropPartial(ctx); err != nil {
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
