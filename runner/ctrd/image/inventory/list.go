// Package inventory lists the images of this machine, records when they were last used, and removes unused ones. It owns which preload archives
// contain which images; it must not decide which images are needed, which its callers report.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/registry"
)

// List returns all images, sorted by name.
func (v *Inventory) List(ctx context.Context) ([]image.Info, error) {
	ctx = v.Local.Namespaced(ctx)
	recs, err := v.Local.Client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	archives := v.ArchivesByName()
	byDigest, parts := map[string]*image.Info{}, map[string]map[string]int64{}
	holders := map[string]int{} // number of images per part
	for _, rec := range recs {
		dig := rec.Target.Digest.String()
		i := byDigest[dig]
		if i == nil {
			i = &image.Info{Digest: dig, FirstSeen: rec.CreatedAt}
			byDigest[dig] = i
			parts[dig] = v.parts(ctx, rec)
			for key := range parts[dig] {
				holders[key]++
			}
		}
		add(i, rec, archives)
	}
	all := make([]image.Info, 0, len(byDigest))
	for dig, i := range byDigest {
		for key, size := range parts[dig] {
			i.Size += size
			if holders[key] == 1 {
				i.Own += size
			}
		}
		all = append(all, *i)
	}
	slices.SortFunc(all, func(a, b image.Info) int { return strings.Compare(sortKey(&a), sortKey(&b)) })
	return all, nil
}

// add merges a record into the image that it names.
func add(i *image.Info, rec images.Image, archives map[string][]string) {
	if rec.CreatedAt.Before(i.FirstSeen) {
		i.FirstSeen = rec.CreatedAt
	}
	switch used := rec.Labels[image.LabelLastUsed]; used {
	case "":
	case image.UsedNow:
		i.UsedNow = true
	default:
		if at, err := time.Parse(time.RFC3339, used); err == nil && at.After(i.LastUsed) {
			i.LastUsed = at
		}
	}
	if repo := rec.Labels[image.LabelPulled]; repo != "" && !slices.Contains(i.RepoDigests, repo) {
		i.RepoDigests = append(i.RepoDigests, repo)
	}
	if owner := rec.Labels[image.LabelPin]; owner != "" {
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

func sortKey(i *image.Info) string { return strings.Join(append(slices.Clone(i.Names), i.Digest), " ") }

// parts returns the existing blobs and snapshots of an image with their sizes in bytes. Unreadable parts are omitted.
func (v *Inventory) parts(ctx context.Context, rec images.Image) map[string]int64 {
	parts := map[string]int64{}
	store, img := v.Local.Client.ContentStore(), client.NewImage(v.Local.Client, rec)
	count := images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		info, err := store.Info(ctx, d.Digest)
		if err != nil {
			return nil, images.ErrSkipDesc // missing: of another platform
		}
		parts[d.Digest.String()] = info.Size
		return images.Children(ctx, store, d)
	})
	if err := images.Walk(ctx, count, rec.Target); err != nil && !errors.Is(err, images.ErrSkipDesc) {
		v.Log.Debug("cannot determine the size of an image", "image", rec.Name, "err", err)
	}
	layers, err := img.RootFS(ctx)
	if err != nil {
		return parts
	}
	sn := v.Local.Client.SnapshotService(v.Local.Snapshotter)
	for n := range layers {
		chain := identity.ChainID(slices.Clone(layers[:n+1])).String()
		if use, err := sn.Usage(ctx, chain); err == nil {
			parts["snapshot "+chain] = use.Size
		}
	}
	return parts
}

// RecordUse records which images are in use, by the digests of their manifests or indexes. It writes only changes.
func (v *Inventory) RecordUse(ctx context.Context, used map[string]bool) error {
	ctx = v.Local.Namespaced(ctx)
	store := v.Local.Client.ImageService()
	recs, err := store.List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	var errs []error
	for _, rec := range recs {
		want := image.UsedNow
		if !used[rec.Target.Digest.String()] {
			if rec.Labels[image.LabelLastUsed] != image.UsedNow {
				continue
			}
			want = time.Now().UTC().Format(time.RFC3339)
		}
		if rec.Labels[image.LabelLastUsed] == want {
			continue
		}
		rec.Labels = map[string]string{image.LabelLastUsed: want}
		if _, err := store.Update(ctx, rec, "labels."+image.LabelLastUsed); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("record the use of image %s: %w", rec.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Targets returns the current digests of references, each with its references. References without an image are omitted.
func (v *Inventory) Targets(ctx context.Context, refs []string) (map[string][]string, error) {
	ctx = v.Local.Namespaced(ctx)
	targets := map[string][]string{}
	for _, ref := range refs {
		name, err := registry.Normalize(ref)
		if err != nil {
			continue // no image can have this name
		}
		switch rec, err := v.Local.Record(ctx, name); {
		case err == nil:
			dig := rec.Target.Digest.String()
			targets[dig] = append(targets[dig], ref)
		case !errdefs.IsNotFound(err):
			return nil, fmt.Errorf("image %q: %w", ref, err)
		}
	}
	return targets, nil
}
