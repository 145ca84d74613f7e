// Package gc decides which images go when the disk is full or they are old. It is pure: no clock, no disk, no containerd.
package gc

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Policy says when images go.
type Policy struct {
	// High is how full the disk is, in percent, when images go, and Low how full it is when that ends. High 100: they do
	// not go for that.
	High, Low int
	// MinAge is how long an image stays at least after it was first here.
	MinAge time.Duration
	// MaxAge is how long an image stays that nobody uses; 0: for ever.
	MaxAge time.Duration
}

// Disabled says that no image ever goes.
func (p Policy) Disabled() bool { return p.High >= 100 && p.MaxAge <= 0 }

// Image is one image, with all its names.
type Image struct {
	// Digest is that of its manifest or index.
	Digest string
	// Size is how many bytes go with it: what it does not share with others.
	Size int64
	// FirstSeen is when it came. LastUsed is when the last container with it was there; zero: never.
	FirstSeen, LastUsed time.Time
	// InUse says that there is a container with it, if only a dead one, or that it is being mounted.
	InUse bool
}

// Disk is a file system.
type Disk struct {
	// Capacity and Available are bytes.
	Capacity, Available int64
}

// Used is how full it is in percent, rounded as a kubelet does; 0 for one without a capacity.
func (d Disk) Used() int {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int(d.Available*100/d.Capacity)
}

// Missing is how many bytes must come free until it is not more than percent full.
func (d Disk) Missing(percent int) int64 {
	return max(0, d.Capacity*int64(100-percent)/100-d.Available)
}

// Removal is an image that goes.
type Removal struct {
	Digest string
	// Size is how much that is expected to free, in bytes.
	Size int64
	// Old says that it goes because it is older than Policy.MaxAge.
	Old bool
}

// Result is what a plan says.
type Result struct {
	// Remove is what goes, in this order.
	Remove []Removal
	// Short is how many bytes are missing all the same.
	Short int64
	// Next is when time alone makes another image go; zero: never.
	Next time.Time
}

// Plan says what goes now. Images that are in use, or whose digest is in needs, never go, whatever the disk looks like.
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

// Reclaim says what goes so that as many bytes come free, because somebody else needs them.
func (p Policy) Reclaim(now time.Time, images []Image, bytes int64, needs map[string]bool) Result {
	r := Result{}
	r.take(p.free(now, images, needs), bytes)
	return r
}

// All is a number of bytes that is never reached: everything goes that may.
const All = math.MaxInt64

// take adds removals until so many bytes come free.
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

// free are the images that may go, those first that were not used for longest, then those that are here for longest.
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

// since is when nobody uses it any more.
func (i *Image) since() time.Time {
	if i.LastUsed.After(i.FirstSeen) {
		return i.LastUsed
	}
	return i.FirstSeen
}
