package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
)

// labelPin marks image records that keep an image by its digest, under a name that nobody else gives. Its value is the
// instance that wants it.
const labelPin = "monopod.dev/pin"

// AtDigest is the reference of what a name stood for when it had the digest. A name that has a digest stays.
func AtDigest(ref, dig string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ref // which says so
	}
	if _, ok := named.(reference.Canonical); ok {
		return ref
	}
	return reference.TrimNamed(named).String() + "@" + dig
}

// pinName names the record that keeps a digest for an owner.
func pinName(owner, dig string) string {
	sum := sha256.Sum256([]byte(owner))
	return "pinned.monopod.dev/" + hex.EncodeToString(sum[:8]) + "@" + dig
}

// SyncPins keeps the images of these digests for an owner and gives up those it kept before. What is so already is not
// written again. One that cannot be kept is no reason not to keep the others; gone are those of which nothing is here.
func (s *Store) SyncPins(ctx context.Context, owner string, digests []string) (gone []string, err error) {
	ctx = s.namespaced(ctx)
	store := s.client.ImageService()
	list, err := store.List(ctx, fmt.Sprintf("labels.%q==%q", labelPin, owner))
	if err != nil {
		return nil, fmt.Errorf("list pinned images: %w", err)
	}
	has := map[string]bool{}
	for i := range list {
		has[list[i].Name] = true
	}
	wanted := map[string]bool{}
	var errs []error
	for _, dig := range digests {
		name := pinName(owner, dig)
		if wanted[name] = true; has[name] {
			continue
		}
		has[name] = true
		switch err := s.pin(ctx, owner, dig, ""); {
		case errdefs.IsNotFound(err):
			gone = append(gone, dig)
		case err != nil && !errdefs.IsAlreadyExists(err):
			errs = append(errs, fmt.Errorf("pin image %s: %w", dig, err))
		}
	}
	for i := range list {
		if name := list[i].Name; !wanted[name] {
			if err := store.Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("unpin image: %w", err))
			}
		}
	}
	return gone, errors.Join(errs...)
}

// EnsureDigest is Ensure of what a name stood for when it had the digest. What is pulled for that is kept for the owner,
// until SyncPins gives it up: under the name of the digest nobody would.
func (s *Store) EnsureDigest(ctx context.Context, owner, ref, dig string, policy corev1.PullPolicy) (*Image, error) {
	at := AtDigest(ref, dig)
	if at == ref {
		return s.Ensure(ctx, ref, policy)
	}
	ctx = s.namespaced(ctx)
	store := s.client.ImageService()
	_, before := store.Get(ctx, at)
	img, err := s.Ensure(ctx, at, policy)
	if err != nil || before == nil {
		return img, err
	}
	if err := s.pin(ctx, owner, dig, img.Digest); err == nil {
		_ = store.Delete(ctx, at) // it is not there if nothing was pulled
	}
	return img, nil
}

// pin keeps an image; pulled is the value of labelPulled, if it has one.
func (s *Store) pin(ctx context.Context, owner, dig, pulled string) error {
	target, err := s.target(ctx, dig)
	if err != nil {
		return err
	}
	labels := map[string]string{labelPin: owner}
	if pulled != "" {
		labels[labelPulled] = pulled
	}
	_, err = s.client.ImageService().Create(ctx, images.Image{Name: pinName(owner, dig), Target: target, Labels: labels})
	return err
}

// target describes a manifest or index that is here. Not all of them say what they are.
func (s *Store) target(ctx context.Context, dig string) (ocispec.Descriptor, error) {
	d, err := digest.Parse(dig)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	info, err := s.client.ContentStore().Info(ctx, d)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := ocispec.Descriptor{Digest: d, Size: info.Size}
	blob, err := readMetadata(ctx, s.client.ContentStore(), desc)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var head struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(blob, &head); err != nil {
		return ocispec.Descriptor{}, err
	}
	switch {
	case head.MediaType != "":
		desc.MediaType = head.MediaType
	case head.Manifests != nil:
		desc.MediaType = ocispec.MediaTypeImageIndex
	default:
		desc.MediaType = ocispec.MediaTypeImageManifest
	}
	return desc, nil
}
