package imagestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/ctrd/image"
)

// pinName returns the name of the record that pins a digest for an owner.
func pinName(owner, dig string) string {
	sum := sha256.Sum256([]byte(owner))
	return "pinned.monopod.dev/" + hex.EncodeToString(sum[:8]) + "@" + dig
}

// SyncPins pins the images with these digests for an owner, and unpins all others of that owner. It continues after errors. Digests without
// an image on this machine are returned as gone.
func (s *Store) SyncPins(ctx context.Context, owner string, digests []string) (gone []string, err error) {
	ctx = s.Local.Namespaced(ctx)
	store := s.client.ImageService()
	pins, err := store.List(ctx, fmt.Sprintf("labels.%q==%q", image.LabelPin, owner))
	if err != nil {
		return nil, fmt.Errorf("list pinned images: %w", err)
	}
	pinned := map[string]bool{}
	for i := range pins {
		pinned[pins[i].Name] = true
	}
	wanted := map[string]bool{}
	var errs []error
	for _, dig := range digests {
		name := pinName(owner, dig)
		if wanted[name] = true; pinned[name] {
			continue
		}
		pinned[name] = true
		switch err := s.pin(ctx, owner, dig, ""); {
		case errdefs.IsNotFound(err):
			gone = append(gone, dig)
		case err != nil && !errdefs.IsAlreadyExists(err):
			errs = append(errs, fmt.Errorf("pin image %s: %w", dig, err))
		}
	}
	for i := range pins {
		if name := pins[i].Name; !wanted[name] {
			if err := store.Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("unpin image: %w", err))
			}
		}
	}
	return gone, errors.Join(errs...)
}

// EnsureDigest is Ensure for a reference at a digest. If it pulls the image, it pins it for the owner until SyncPins unpins it; a record with
// the digest as its name would never be removed.
func (s *Store) EnsureDigest(ctx context.Context, owner, ref, dig string, policy corev1.PullPolicy) (*image.Image, error) {
	at := image.AtDigest(ref, dig)
	if at == ref {
		return s.Ensure(ctx, ref, policy)
	}
	ctx = s.Local.Namespaced(ctx)
	store := s.client.ImageService()
	_, before := store.Get(ctx, at)
	img, err := s.Ensure(ctx, at, policy)
	if err != nil || before == nil {
		return img, err
	}
	if err := s.pin(ctx, owner, dig, img.Digest); err == nil {
		_ = store.Delete(ctx, at) // missing if nothing was pulled
	}
	return img, nil
}

// pin creates the record that pins an image. pulled is the value of image.LabelPulled, or "".
func (s *Store) pin(ctx context.Context, owner, dig, pulled string) error {
	target, err := s.Local.Target(ctx, dig)
	if err != nil {
		return err
	}
	labels := map[string]string{image.LabelPin: owner}
	if pulled != "" {
		labels[image.LabelPulled] = pulled
	}
	_, err = s.client.ImageService().Create(ctx, images.Image{Name: pinName(owner, dig), Target: target, Labels: labels})
	return err
}
