package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image/registry"
)

// labelLastUsed holds when the last container with an image went, or usedNow. Who was killed meanwhile finds usedNow, and
// knows that it was used until then: nothing has to be written while nothing changes.
const (
	labelLastUsed = "monopod.dev/last-used"
	usedNow       = "now"
)

// Info is an image with all its names.
type Info struct {
	// Digest is that of its manifest or index.
	Digest string
	// Names are the normalised references under which it is here; RepoDigests are what registries gave.
	Names, RepoDigests []string
	// Pins are the instances that keep it by its digest, Archives the files in preload directories that hold it.
	Pins, Archives []string
	// Size is how many bytes it takes, compressed and unpacked, Own those of them that it shares with no other image.
	Size, Own int64
	// FirstSeen is when it came, LastUsed when the last container with it went; zero: never, or one is there.
	FirstSeen, LastUsed time.Time
	// UsedNow says that a container with it was there when NoteUse was last called.
	UsedNow bool
}

// List returns all images, in the order of their names.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	ctx = s.namespaced(ctx)
	recs, err := s.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	archives := s.archivesByName()
	byDigest, parts := map[string]*Info{}, map[string]map[string]int64{}
	holders := map[string]int{} // how many images a part is of
	for _, rec := range recs {
		dig := rec.Target.Digest.String()
		i := byDigest[dig]
		if i == nil {
			i = &Info{Digest: dig, FirstSeen: rec.CreatedAt}
			byDigest[dig] = i
			parts[dig] = s.parts(ctx, rec)
			for key := range parts[dig] {
				holders[key]++
			}
		}
		i.add(rec, archives)
	}
	all := make([]Info, 0, len(byDigest))
	for dig, i := range byDigest {
		for key, size := range parts[dig] {
			i.Size += size
			if holders[key] == 1 {
				i.Own += size
			}
		}
		all = append(all, *i)
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.title(), b.title()) })
	return all, nil
}

// add takes up one of the names of an image.
func (i *Info) add(rec images.Image, archives map[string][]string) {
	if rec.CreatedAt.Before(i.FirstSeen) {
		i.FirstSeen = rec.CreatedAt
	}
	switch used := rec.Labels[labelLastUsed]; used {
	case "":
	case usedNow:
		i.UsedNow = true
	default:
		if at, err := time.Parse(time.RFC3339, used); err == nil && at.After(i.LastUsed) {
			i.LastUsed = at
		}
	}
	if repo := rec.Labels[labelPulled]; repo != "" && !slices.Contains(i.RepoDigests, repo) {
		i.RepoDigests = append(i.RepoDigests, repo)
	}
	if owner := rec.Labels[labelPin]; owner != "" {
		if !slices.Contains(i.Pins, owner) {
			i.Pins = append(i.Pins, owner)
		}
		return
	}
	i.Names = append(i.Names, rec.Name)
	for _, path := range archives[rec.Name] {
		if !slices.Contains(i.Archives, path) {
			i.Archives = append(i.Archives, path)
		}
	}
}

func (i *Info) title() string { return strings.Join(append(slices.Clone(i.Names), i.Digest), " ") }

// parts are the blobs and snapshots of an image that are here, with their bytes. What cannot be read has none.
func (s *Store) parts(ctx context.Context, rec images.Image) map[string]int64 {
	parts := map[string]int64{}
	store, img := s.client.ContentStore(), client.NewImage(s.client, rec)
	count := images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		info, err := store.Info(ctx, d.Digest)
		if err != nil {
			return nil, images.ErrSkipDesc // that of another platform is not here
		}
		parts[d.Digest.String()] = info.Size
		return images.Children(ctx, store, d)
	})
	if err := images.Walk(ctx, count, rec.Target); err != nil && !errors.Is(err, images.ErrSkipDesc) {
		s.cfg.Log.Debug("the size of an image is not known", "image", rec.Name, "err", err)
	}
	layers, err := img.RootFS(ctx)
	if err != nil {
		return parts
	}
	sn := s.client.SnapshotService(s.cfg.Snapshotter)
	for n := range layers {
		chain := identity.ChainID(slices.Clone(layers[:n+1])).String()
		if use, err := sn.Usage(ctx, chain); err == nil {
			parts["snapshot "+chain] = use.Size
		}
	}
	return parts
}

// NoteUse takes down which images are in use, by the digests of their manifests or indexes. It writes only what has changed.
func (s *Store) NoteUse(ctx context.Context, used map[string]bool) error {
	ctx = s.namespaced(ctx)
	store := s.client.ImageService()
	recs, err := store.List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	var errs []error
	for _, rec := range recs {
		want := usedNow
		if !used[rec.Target.Digest.String()] {
			if rec.Labels[labelLastUsed] != usedNow {
				continue
			}
			want = time.Now().UTC().Format(time.RFC3339)
		}
		if rec.Labels[labelLastUsed] == want {
			continue
		}
		rec.Labels = map[string]string{labelLastUsed: want}
		if _, err := store.Update(ctx, rec, "labels."+labelLastUsed); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("note the use of image %s: %w", rec.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Remove removes an image with all its names, and what no other image shares of its content. needed is asked at a moment
// in which nobody can find the image to be present.
func (s *Store) Remove(ctx context.Context, dig string, needed func() bool) error {
	ctx = s.namespaced(ctx)
	s.gate.Lock()
	defer s.gate.Unlock()
	if needed() {
		return ErrNeeded
	}
	store := s.client.ImageService()
	recs, err := store.List(ctx, fmt.Sprintf("target.digest==%q", dig))
	if err != nil {
		return fmt.Errorf("remove image %s: %w", dig, err)
	}
	for n, rec := range recs {
		var opts []images.DeleteOpt
		if n == len(recs)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := store.Delete(ctx, rec.Name, opts...); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove image %s: %w", rec.Name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, dig)
	return nil
}

// ErrNeeded says that an image stays because somebody needs it.
var ErrNeeded = errors.New("it is needed")

// Targets returns the digests that references stand for now; those of which nothing is here are left out.
func (s *Store) Targets(ctx context.Context, refs []string) (map[string][]string, error) {
	ctx = s.namespaced(ctx)
	targets := map[string][]string{}
	for _, ref := range refs {
		name, err := registry.Normalize(ref)
		if err != nil {
			continue // nothing can be here under it
		}
		switch rec, err := s.record(ctx, name); {
		case err == nil:
			dig := rec.Target.Digest.String()
			targets[dig] = append(targets[dig], ref)
		case !errdefs.IsNotFound(err):
			return nil, fmt.Errorf("image %q: %w", ref, err)
		}
	}
	return targets, nil
}

// noteArchive takes down which images an archive of a preload directory holds.
func (s *Store) noteArchive(path string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.archives == nil {
		s.archives = map[string][]string{}
	}
	s.archives[path] = names
}

// archivesByName are the archives that are still there, by the names of their images.
func (s *Store) archivesByName() map[string][]string {
	s.mu.Lock()
	archives := maps.Clone(s.archives)
	s.mu.Unlock()
	byName := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(archives)) {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, name := range archives[path] {
			byName[name] = append(byName[name], path)
		}
	}
	return byName
}
