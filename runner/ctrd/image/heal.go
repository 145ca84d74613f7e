package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/layer"
)

// Doubt says that what is on the disk may be damaged: the machine went down without warning.
type Doubt struct {
	// Blobs is the directory of containerd's content, blobs/<algorithm>/<hex> below it; empty: damaged blobs cannot be
	// replaced.
	Blobs string
	// Sound are the digests of images that have been looked at since.
	Sound []string
	// OnSound is called when one more has been, OnAll when all have.
	OnSound func(digest string)
	OnAll   func()
	// Notice is told what was damaged, and whether it is repaired: err says why not.
	Notice func(image, damage string, err error)
}

// healer finds and repairs damage in images. An image is looked at when a container of it is about to be made; in the
// background all others are, with rests. In the layer of a snapshot it repairs in place: nothing runs on it, for what
// ran before the machine went down does not, and what is to run waits for it.
type healer struct {
	s     *Store
	doubt Doubt
	// waiting is how many containers wait: then nobody rests, and the background stops at the next file.
	waiting atomic.Int32
	// over says that all images are sound.
	over atomic.Bool

	mu sync.Mutex // guards all below
	// sound are the images, by the digest of their target, and the layers, by chain id, that are as they should be.
	sound map[string]bool
	// busy has the images that are being looked at; the channel is closed at the end.
	busy map[string]chan struct{}
	// awaited counts who waits for the end of that.
	awaited map[string]int
}

// restAfter is how long the background works before it rests for twice as long.
const restAfter = 20 * time.Millisecond

func newHealer(s *Store, d Doubt) *healer {
	h := &healer{s: s, doubt: d, sound: map[string]bool{}, busy: map[string]chan struct{}{}, awaited: map[string]int{}}
	for _, dig := range d.Sound {
		h.sound[dig] = true
	}
	return h
}

// ensureSound returns when the image of that name is as it should be, if it is here and in doubt.
func (s *Store) ensureSound(ctx context.Context, name string) error {
	h := s.heal
	if h == nil || h.over.Load() {
		return nil
	}
	rec, err := s.record(ctx, name)
	if err != nil {
		return nil //nolint:nilerr // who looks for the image sees that himself
	}
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	return h.image(ctx, rec, func() error { return ctx.Err() })
}

// Heal looks at all images that are in doubt until there is none, or ctx ends.
func (s *Store) Heal(ctx context.Context) {
	h := s.heal
	if h == nil {
		return
	}
	ctx = s.namespaced(ctx)
	for wait := time.Minute; ctx.Err() == nil; wait = min(2*wait, time.Hour) {
		if h.all(ctx) {
			h.over.Store(true)
			h.doubt.OnAll()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// all looks at all images once, and says whether all are sound.
func (h *healer) all(ctx context.Context) bool {
	list, err := h.s.client.ImageService().List(ctx)
	sound := err == nil
	for _, rec := range list {
		if err := h.image(ctx, rec, h.pace(ctx, rec.Target.Digest.String())); err != nil {
			sound = false
			if ctx.Err() == nil {
				h.s.cfg.Log.Warn("an image is damaged", "image", rec.Name, "err", err)
			}
		}
	}
	return sound && ctx.Err() == nil
}

// pace returns what the background calls between files of an image: it rests for two thirds of the time, and earlier while a
// container waits for another image. For the image that a container waits for it does not rest.
func (h *healer) pace(ctx context.Context, key string) func() error {
	began := time.Now()
	return func() error {
		if h.isAwaited(key) {
			began = time.Now()
			return ctx.Err()
		}
		worked := time.Since(began)
		if worked < restAfter && h.waiting.Load() == 0 {
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

func (h *healer) isAwaited(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.awaited[key] > 0
}

// await waits until somebody else has looked at an image.
func (h *healer) await(ctx context.Context, key string, done <-chan struct{}) error {
	h.mu.Lock()
	h.awaited[key]++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.awaited[key]--; h.awaited[key] == 0 {
			delete(h.awaited, key)
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// image looks at one image, unless it is known to be sound, and repairs what is damaged.
func (h *healer) image(ctx context.Context, rec images.Image, rest func() error) error {
	key := rec.Target.Digest.String()
	for {
		h.mu.Lock()
		busy, sound := h.busy[key], h.sound[key]
		if !sound && busy == nil {
			break
		}
		h.mu.Unlock()
		if sound {
			return nil
		}
		if err := h.await(ctx, key, busy); err != nil {
			return err
		}
	}
	done := make(chan struct{})
	h.busy[key] = done
	h.mu.Unlock()
	looked := false // a panic is no answer
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.busy, key)
		close(done)
		if looked {
			h.sound[key] = true
			h.doubt.OnSound(key)
		}
	}()
	if err := h.look(ctx, rec, rest); err != nil {
		return fmt.Errorf("image %s is damaged, or cannot be looked at after the machine went down: %w", rec.Name, err)
	}
	looked = true
	return nil
}

// look looks at manifests, config, layers and snapshots of an image, in this order: each says what the next is to be.
func (h *healer) look(ctx context.Context, rec images.Image, rest func() error) error {
	if err := h.manifests(ctx, rec, rec.Target, rest); err != nil {
		return err
	}
	store := h.s.client.ContentStore()
	m, err := images.Manifest(ctx, store, rec.Target, platforms.Default())
	if errdefs.IsNotFound(err) {
		return nil // not all of it is here: it is pulled before anything is made of it
	}
	if err != nil {
		return err
	}
	if err := h.blob(ctx, rec, m.Config, rest); err != nil {
		return err
	}
	diffs, err := images.RootFS(ctx, store, m.Config)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil || len(diffs) != len(m.Layers) {
		return err // an artifact, which has no layers of files
	}
	for i, layer := range m.Layers {
		if err := h.layer(ctx, rec, layer, identity.ChainID(diffs[:i+1]).String(), rest); err != nil {
			return err
		}
	}
	return nil
}

// manifests looks at an index and those of its manifests that are here.
func (h *healer) manifests(ctx context.Context, rec images.Image, desc ocispec.Descriptor, rest func() error) error {
	if err := h.blob(ctx, rec, desc, rest); err != nil || !images.IsIndexType(desc.MediaType) {
		return err
	}
	b, err := readMetadata(ctx, h.s.client.ContentStore(), desc)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("index %s: %w", desc.Digest, err)
	}
	for _, m := range index.Manifests {
		if err := h.blob(ctx, rec, m, rest); err != nil {
			return err
		}
	}
	return nil
}

// blob looks at a blob that is read as a whole, and replaces it if it is damaged. One that is not here is not its business.
func (h *healer) blob(ctx context.Context, rec images.Image, desc ocispec.Descriptor, rest func() error) error {
	var damage error
	for range 2 {
		damage = h.digest(ctx, desc, io.Discard, rest)
		if damage == nil || errdefs.IsNotFound(damage) {
			return nil
		}
		if !errors.Is(damage, errDamaged) {
			return damage
		}
		if err := h.replace(ctx, rec, desc, damage); err != nil {
			return err
		}
	}
	return damage
}

// errDamaged is that of a blob that is not what its digest says.
var errDamaged = errors.New("damaged")

// digest reads a blob into w and compares it with its digest.
func (h *healer) digest(ctx context.Context, desc ocispec.Descriptor, w io.Writer, rest func() error) error {
	store := h.s.client.ContentStore()
	r, err := store.ReaderAt(ctx, desc)
	if errdefs.IsNotFound(err) {
		if _, known := store.Info(ctx, desc.Digest); known == nil {
			return fmt.Errorf("blob %s is missing: %w", desc.Digest, errDamaged)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	v := desc.Digest.Verifier()
	buf := make([]byte, layer.CompareBlock)
	from := content.NewReader(r)
	for {
		n, err := from.Read(buf)
		_, _ = v.Write(buf[:n]) // never fails
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("blob %s: %w: %w", desc.Digest, errDamaged, err)
		}
		if err := rest(); err != nil {
			return err
		}
	}
	if !v.Verified() {
		return fmt.Errorf("blob %s (%d bytes) is %w", desc.Digest, r.Size(), errDamaged)
	}
	return nil
}

// layer looks at a layer and its snapshot, and repairs both.
func (h *healer) layer(ctx context.Context, rec images.Image, desc ocispec.Descriptor, chain string, rest func() error) error {
	h.mu.Lock()
	sound := h.sound[chain]
	h.mu.Unlock()
	if sound || !images.IsLayerType(desc.MediaType) {
		return nil
	}
	if err := h.blob(ctx, rec, desc, rest); err != nil {
		return err
	}
	err := h.snapshot(ctx, rec, desc, chain, rest)
	if errdefs.IsNotFound(err) {
		return nil // it is unpacked, or fetched before, when it is needed
	}
	if err == nil {
		h.mu.Lock()
		h.sound[chain] = true
		h.mu.Unlock()
	}
	return err
}

// snapshot looks at the directory of a layer, and makes it anew from the layer if it is damaged.
func (h *healer) snapshot(ctx context.Context, rec images.Image, desc ocispec.Descriptor, chain string, rest func() error) error {
	if h.s.cfg.Snapshotter != "overlayfs" {
		return nil // the others have no directory for each layer
	}
	mounts, release, err := h.view(ctx, chain)
	if err != nil {
		return err
	}
	defer release()
	dir, overlay := layerDir(mounts)
	if dir == "" {
		return fmt.Errorf("the directory of layer %s is not known", desc.Digest)
	}
	wrong, err := h.compare(ctx, desc, dir, overlay, rest)
	if err != nil || len(wrong) == 0 {
		return err
	}
	damage := fmt.Sprintf("%d files of layer %s are damaged, the first: %s", len(wrong), desc.Digest, wrong[0])
	err = h.unpackAgain(ctx, desc, mounts)
	if err == nil {
		if wrong, err = h.compare(ctx, desc, dir, overlay, rest); err == nil && len(wrong) > 0 {
			err = fmt.Errorf("after it was unpacked again: %s", strings.Join(wrong[:min(len(wrong), 3)], ", "))
		}
	}
	h.doubt.Notice(rec.Name, damage, err)
	return err
}

// view makes a snapshot on top of a chain, which shows where its layers are.
func (h *healer) view(ctx context.Context, chain string) ([]mount.Mount, func(), error) {
	ctx, end, err := h.s.client.WithLease(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx = context.WithoutCancel(ctx)
	sn := h.s.client.SnapshotService(h.s.cfg.Snapshotter)
	key := "monopod-heal-" + uuid.NewString()
	mounts, err := sn.View(ctx, key, chain)
	if err != nil {
		return nil, nil, errors.Join(err, end(ctx))
	}
	return mounts, func() {
		if err := errors.Join(sn.Remove(ctx, key), end(ctx)); err != nil {
			h.s.cfg.Log.Warn("give back what a layer was looked at with", "err", err)
		}
	}, nil
}

// layerDir is the directory of the uppermost layer of a view; overlay says that there are others below it.
func layerDir(mounts []mount.Mount) (dir string, overlay bool) {
	if len(mounts) != 1 {
		return "", false
	}
	if mounts[0].Type == "bind" {
		return mounts[0].Source, false
	}
	dirs := lowerDirs(mounts[0])
	if len(dirs) == 0 {
		return "", false
	}
	return dirs[0], true
}

func lowerDirs(m mount.Mount) []string {
	for _, o := range m.Options {
		if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
			return strings.Split(dirs, ":")
		}
	}
	return nil
}

// compare returns what of a layer is not in its directory.
func (h *healer) compare(ctx context.Context, desc ocispec.Descriptor, dir string, overlay bool, rest func() error) ([]string, error) {
	r, err := h.s.client.ContentStore().ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	text, err := bounded.Decompress(content.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", desc.Digest, err)
	}
	defer func() { _ = text.Close() }()
	wrong, err := layer.CompareLayer(text, dir, overlay, rest)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", desc.Digest, err)
	}
	return wrong, nil
}

// unpackAgain unpacks a layer into its directory, over what is there.
func (h *healer) unpackAgain(ctx context.Context, desc ocispec.Descriptor, view []mount.Mount) error {
	dir, overlay := layerDir(view)
	into := []mount.Mount{{Type: "bind", Source: dir, Options: []string{"rw", "rbind"}}}
	if overlay {
		if err := layer.ClearMarks(dir); err != nil {
			return err
		}
		below := strings.Join(lowerDirs(view[0])[1:], ":")
		into = []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{"upperdir=" + dir, "lowerdir=" + below}}}
	}
	got, err := h.s.client.DiffService().Apply(ctx, desc, into, diff.WithSyncFs(true))
	if err != nil {
		return fmt.Errorf("unpack layer %s again: %w", desc.Digest, err)
	}
	if got.Digest.Algorithm() != digest.Canonical {
		return fmt.Errorf("unpack layer %s again: it has digest %s", desc.Digest, got.Digest)
	}
	return nil
}

// replace fetches a damaged blob again.
func (h *healer) replace(ctx context.Context, rec images.Image, desc ocispec.Descriptor, damage error) error {
	from, err := h.s.refetch(ctx, rec.Name, desc, h.doubt.Blobs)
	text := damage.Error()
	if err == nil {
		text += "; it was fetched again from " + from
		h.s.mu.Lock()
		clear(h.s.known)
		h.s.mu.Unlock()
	}
	h.doubt.Notice(rec.Name, text, err)
	if err != nil {
		return fmt.Errorf("%w, and cannot be had again: %v", damage, err) //nolint:errorlint // the image is not absent because the registry lacks it
	}
	return nil
}
