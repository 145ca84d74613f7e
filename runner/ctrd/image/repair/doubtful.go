package repair

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Doubt means that images may be damaged because the machine went down without a shutdown.
type Doubt struct {
	// Sound are the digests of images that have been checked since.
	Sound []string
	// OnSound is called for each image that was checked, OnAll when all were.
	OnSound func(digest string)
	OnAll   func()
}

// doubtful checks each image once after a power loss: before a container uses it, and all others in the background at a third of the time.
// It unpacks damaged layers again in place. That is safe: no container runs on them, because those from before the power loss are gone, and
// new ones wait for the check.
type doubtful struct {
	*Config
	// waiting is the number of containers that wait for a check. The background then pauses at the next file.
	waiting atomic.Int32
	// done reports that all images are sound.
	done atomic.Bool

	mu sync.Mutex // guards all below
	// sound has the images, by the digest of their target, and the layers, by chain ID, that are undamaged.
	sound map[string]bool
	// checking has the images that are being checked; the channel is closed when the check is complete.
	checking map[string]chan struct{}
	// awaited has the number of containers that wait for each of these checks.
	awaited map[string]int
}

// backgroundSlice is how long the background works before it pauses for twice as long.
const backgroundSlice = 20 * time.Millisecond

func newDoubtful(cfg *Config) *doubtful {
	d := &doubtful{Config: cfg, sound: map[string]bool{}, checking: map[string]chan struct{}{}, awaited: map[string]int{}}
	for _, dig := range cfg.Doubt.Sound {
		d.sound[dig] = true
	}
	return d
}

// checkBeforeUse returns when the image with that name is sound. A missing image is not an error.
func (d *doubtful) checkBeforeUse(ctx context.Context, name string) error {
	if d.done.Load() {
		return nil
	}
	rec, err := d.Local.Record(ctx, name)
	if err != nil {
		return nil //nolint:nilerr // the caller looks up the record, too
	}
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	return d.image(ctx, rec, func() error { return ctx.Err() })
}

// run checks all images until all are sound or ctx ends.
func (d *doubtful) run(ctx context.Context) {
	for wait := time.Minute; ctx.Err() == nil; wait = min(2*wait, time.Hour) {
		if d.all(ctx) {
			d.done.Store(true)
			d.Doubt.OnAll()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// all checks all images once, and reports whether all are sound.
func (d *doubtful) all(ctx context.Context) bool {
	list, err := d.Local.Client.ImageService().List(ctx)
	sound := err == nil
	for _, rec := range list {
		if err := d.image(ctx, rec, d.pacer(ctx, rec.Target.Digest.String())); err != nil {
			sound = false
			if ctx.Err() == nil {
				d.Log.Warn("an image is damaged", "image", rec.Name, "err", err)
			}
		}
	}
	return sound && ctx.Err() == nil
}

// pacer returns the function that the background calls between blocks of an image. It sleeps for two thirds of the time, at once while a
// container waits for another image, and never while a container waits for this one.
func (d *doubtful) pacer(ctx context.Context, key string) func() error {
	began := time.Now()
	return func() error {
		if d.isAwaited(key) {
			began = time.Now()
			return ctx.Err()
		}
		worked := time.Since(began)
		if worked < backgroundSlice && d.waiting.Load() == 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(2 * worked)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		began = time.Now()
		return ctx.Err()
	}
}

func (d *doubtful) isAwaited(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.awaited[key] > 0
}

// await waits for the end of the check of an image by another goroutine.
func (d *doubtful) await(ctx context.Context, key string, done <-chan struct{}) error {
	d.mu.Lock()
	d.awaited[key]++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.awaited[key]--; d.awaited[key] == 0 {
			delete(d.awaited, key)
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// image checks an image, unless it is known to be sound, and repairs it.
func (d *doubtful) image(ctx context.Context, rec images.Image, pause func() error) error {
	key := rec.Target.Digest.String()
	for {
		d.mu.Lock()
		checking, sound := d.checking[key], d.sound[key]
		if !sound && checking == nil {
			break
		}
		d.mu.Unlock()
		if sound {
			return nil
		}
		if err := d.await(ctx, key, checking); err != nil {
			return err
		}
	}
	done := make(chan struct{})
	d.checking[key] = done
	d.mu.Unlock()
	sound := false // and after a panic
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.checking, key)
		close(done)
		if sound {
			d.sound[key] = true
			d.Doubt.OnSound(key)
		}
	}()
	if err := d.check(ctx, rec, pause); err != nil {
		return fmt.Errorf("image %s is damaged or cannot be checked after the machine went down: %w", rec.Name, err)
	}
	sound = true
	return nil
}

// check checks manifests, config, layers and snapshots of an image, in this order: each names the next.
func (d *doubtful) check(ctx context.Context, rec images.Image, pause func() error) error {
	c := &checker{Config: d.Config}
	if err := c.manifests(ctx, rec, rec.Target, pause); err != nil {
		return err
	}
	store := d.Local.Client.ContentStore()
	m, err := images.Manifest(ctx, store, rec.Target, platforms.Default())
	if errdefs.IsNotFound(err) {
		return nil // incomplete: it will be pulled before it is used
	}
	if err != nil {
		return err
	}
	if err := c.blob(ctx, rec, m.Config, pause); err != nil {
		return err
	}
	diffs, err := images.RootFS(ctx, store, m.Config)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil || len(diffs) != len(m.Layers) {
		return err // without an error: an artifact, which has no layers of files
	}
	for i, layer := range m.Layers {
		if err := d.layer(ctx, c, rec, layer, identity.ChainID(diffs[:i+1]).String(), pause); err != nil {
			return err
		}
	}
	return nil
}

// layer checks and repairs a layer and its snapshot.
func (d *doubtful) layer(ctx context.Context, c *checker, rec images.Image, desc ocispec.Descriptor, chain string, pause func() error) error {
	d.mu.Lock()
	sound := d.sound[chain]
	d.mu.Unlock()
	if sound || !images.IsLayerType(desc.MediaType) {
		return nil
	}
	if err := c.blob(ctx, rec, desc, pause); err != nil {
		return err
	}
	err := c.snapshot(ctx, rec, desc, chain, pause)
	if errdefs.IsNotFound(err) {
		return nil // it will be pulled and unpacked before it is used
	}
	if err == nil {
		d.mu.Lock()
		d.sound[chain] = true
		d.mu.Unlock()
	}
	return err
}
