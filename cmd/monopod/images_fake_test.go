package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
)

// fakeImages are images in memory: a reference stands for the digest of the same name. It collects as the real ones do,
// on a disk of which each image takes a percent for each byte.
type fakeImages struct {
	// before, unless nil, is called when a collection has begun.
	before func()
	mu     sync.Mutex
	// all are the images, pulls those that come when somebody asks, with their bytes.
	all     []ctrd.ImageUse
	pulls   []image.Pull
	disk    gc.Disk
	err     error
	changed chan struct{}
	wanted  atomic.Int64
	// coming are pulls that wait for the end of the channel.
	coming map[string]chan error
}

func newFakeImages() *fakeImages {
	return &fakeImages{changed: make(chan struct{}, 1), disk: gc.Disk{Capacity: 100, Available: 50}, coming: map[string]chan error{}}
}

// Images implements Runtime.
func (f *fakeImages) Images() imageService {
	if f == nil {
		return newFakeImages()
	}
	return f
}

func (f *fakeImages) List(context.Context) ([]ctrd.ImageUse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all), f.err
}

func (f *fakeImages) Pulls(_ context.Context, ref string) ([]image.Pull, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []image.Pull
	for _, p := range f.pulls {
		if ref == "" || p.Name == ref {
			found = append(found, p)
		}
	}
	return found, f.err
}

func (f *fakeImages) Pull(ctx context.Context, ref string, _ corev1.PullPolicy) (*image.Image, error) {
	f.mu.Lock()
	wait := f.coming[ref]
	f.mu.Unlock()
	if wait == nil {
		return nil, &runner.StepError{Reason: runner.ReasonErrImagePull, Err: fmt.Errorf("pull image %q: no such image", ref)}
	}
	select {
	case err := <-wait:
		return &image.Image{Name: ref, Target: "sha256:" + ref}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeImages) Targets(_ context.Context, refs []string) (map[string][]string, error) {
	targets := map[string][]string{}
	for _, r := range refs {
		targets["sha256:"+r] = append(targets["sha256:"+r], r)
	}
	return targets, nil
}

func (f *fakeImages) Collect(ctx context.Context, c image.Collection) (out image.Collected, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return out, f.err
	}
	if f.before != nil {
		f.before()
	}
	refs, digests, err := c.Needs()
	if err != nil {
		return out, err
	}
	needs := map[string]bool{}
	targets, _ := f.Targets(ctx, refs)
	for dig := range targets {
		needs[dig] = true
	}
	for _, dig := range digests {
		needs[dig] = true
	}
	var all []gc.Image
	for _, u := range f.all {
		all = append(all, gc.Image{Digest: u.Digest, Size: u.Own, FirstSeen: u.FirstSeen, LastUsed: u.LastUsed, InUse: len(u.Pods) > 0})
	}
	plan := c.Policy.Plan(time.Now(), all, f.disk, needs)
	if c.Bytes > 0 {
		plan = c.Policy.Reclaim(time.Now(), all, c.Bytes, needs)
	}
	for _, x := range plan.Remove {
		f.all = slices.DeleteFunc(f.all, func(u ctrd.ImageUse) bool { return u.Digest == x.Digest })
		f.disk.Available += x.Size
		out.Freed += x.Size
		out.Removed = append(out.Removed, x.Digest)
	}
	out.Short, out.Next, out.Disk = plan.Short, plan.Next, f.disk
	return out, nil
}

func (f *fakeImages) Remove(_ context.Context, digest string, forced bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.all {
		if f.all[i].Digest == digest && len(f.all[i].Pods) > 0 && !forced {
			return image.ErrNeeded
		}
	}
	f.all = slices.DeleteFunc(f.all, func(u ctrd.ImageUse) bool { return u.Digest == digest })
	return nil
}

func (f *fakeImages) Disk() (gc.Disk, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disk, f.err
}

func (f *fakeImages) Changed() <-chan struct{} { return f.changed }

func (f *fakeImages) Wanted() int64 { return f.wanted.Swap(0) }

// digests are those of the images that are there.
func (f *fakeImages) digests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, u := range f.all {
		all = append(all, u.Digest)
	}
	slices.Sort(all)
	return all
}
