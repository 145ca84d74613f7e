// Package gc selects the images that garbage collection removes because the disk is full or the images are old. It is pure; it must not access
// clock, disk or containerd.
package gc

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Policy configures the garbage collection of images.
type Policy struct {
	// High is the disk usage in percent that starts a collection, Low the usage at which it ends. High 100 disables it.
	High, Low int
	// MinAge is how long an image stays at least after it was first seen.
	MinAge time.Duration
	// MaxAge is how long an unused image stays; 0: no limit.
	MaxAge time.Duration
}

// Disabled reports whether the policy never removes an image.
func (p Policy) Disabled() bool { return p.High >= 100 && p.MaxAge <= 0 }

// Image is an image with all its names.
type Image struct {
	// Digest is the digest of its manifest or index.
	Digest string
	// Size is how many bytes its removal frees: what it shares with no other image.
	Size int64
	// FirstSeen is when it was pulled or imported. LastUsed is when its last container was removed; zero: never.
	FirstSeen, LastUsed time.Time
	// InUse reports whether it has a container, also a stopped one, or is being mounted.
	InUse bool
}

// Disk is a file system.
type Disk struct {
	// Capacity and Available are bytes.
	Capacity, Available int64
}

// Used returns the usage in percent, rounded as by a kubelet; 0 without a capacity.
func (d Disk) Used() int {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int(d.Available*100/d.Capacity)
}

// Missing returns how many bytes must be freed to reach a usage in percent.
func (d Disk) Missing(percent int) int64 {
	return max(0, d.Capacity*int64(100-percent)/100-d.Available)
}

// Removal is the removal of an image.
type Removal struct {
	Digest string
	// Size is how many bytes it is expected to free.
	Size int64
	// Old reports whether the image is older than Policy.MaxAge.
	Old bool
}

// Result is the result of a plan.
type Result struct {
	// Remove are the images to remove, in this order.
	Remove []Removal
	// Short is how many bytes are missing after that.
	Short int64
	// Next is when the next image will be old enough to be removed; zero: never.
	Next time.Time
}

// Plan selects the images to remove now. Images that are in use, or whose digest is in needs, are never removed.
func (p Policy) Plan(now time.Time, images []Image, disk Disk, needs map[string]bool) Result {
	free := p.free(now, images, needs)
	r := Result{}
	free = slices.DeleteFunc(free, func(i Image) bool {
		if p.MaxAge <= 0 {
			return false
		}
		if old := i.since().Add(p.MaxAge); old.After(now) {
			r.soon(old)
			return false
		}
		r.Remove = append(r.Remove, Removal{Digest: i.Digest, Size: i.Size, Old: true})
		disk.Available += i.Size
		return true
	})
	if p.High < 100 && disk.Capacity > 0 && disk.Used() >= p.High {
		r.take(free, disk.Missing(p.Low))
	}
	return r
}

// Reclaim selects images to free a number of bytes, regardless of the usage of the disk.
func (p Policy) Reclaim(now time.Time, images []Image, bytes int64, needs map[string]bool) Result {
	r := Result{}
	r.take(p.free(now, images, needs), bytes)
	return r
}

// All is more bytes than any disk has, to reclaim all unneeded images.
const All = math.MaxInt64

// take adds removals until a number of bytes is freed.
func (r *Result) take(free []Image, bytes int64) {
	for _, i := range free {
		if bytes <= 0 {
			break
		}
		r.Remove = append(r.Remove, Removal{Digest: i.Digest, Size: i.Size})
		bytes -= i.Size
	}
	r.Short = max(0, bytes)
}

func (r *Result) soon(at time.Time) {
	if r.Next.IsZero() || at.Before(r.Next) {
		r.Next = at
	}
}

// free returns the removable images, the least recently used first, then the oldest.
func (p Policy) free(now time.Time, images []Image, needs map[string]bool) []Image {
	var free []Image
	for _, i := range images {
		if !i.InUse && !needs[i.Digest] && now.Sub(i.FirstSeen) >= p.MinAge {
			free = append(free, i)
		}
	}
	slices.SortStableFunc(free, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.Digest, b.Digest))
	})
	return free
}

// since returns when the image was used last, or first seen.
func (i *Image) since() time.Time {
	if i.LastUsed.After(i.FirstSeen) {
		return i.LastUsed
	}
	return i.FirstSeen
}
