// Package signature finds the cosign signatures of images in registries and verifies them. It must not store anything; package trust knows the
// formats and decides which keys count.
package signature

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/trust"
)

// Limits on reading signatures: their number per image, and the size of each in bytes.
const (
	maxSignatures = 64
	maxSignature  = 256 << 10
)

// ErrInvalid reports that an image has no valid signature by a trusted key.
var ErrInvalid = errors.New("signature validation failed")

// Label returns the value of image.LabelVerified for a digest that was verified with the keys of a rule.
func Label(rule *trust.Rule, target string) (string, error) {
	keys, err := rule.Keys.Parse()
	if err != nil {
		return "", err
	}
	return label(keys, target), nil
}

func label(keys *trust.Parsed, target string) string { return keys.Fingerprint + "@" + target }

// Verify searches the repository of an image for a valid signature of a digest by a key of the rule, and returns the value of
// image.LabelVerified. The error matches ErrInvalid if there is none.
func Verify(ctx context.Context, resolver remotes.Resolver, name string, target digest.Digest, rule *trust.Rule) (string, error) {
	keys, err := rule.Keys.Parse()
	if err != nil {
		return "", err
	}
	if err := verify(ctx, resolver, name, target, keys); err != nil {
		return "", err
	}
	return label(keys, target.String()), nil
}

func verify(ctx context.Context, resolver remotes.Resolver, name string, target digest.Digest, keys *trust.Parsed) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return err
	}
	repository := reference.TrimNamed(named).String()
	found, simpleErr := verifySimple(ctx, resolver, repository, target.String(), keys)
	if simpleErr == nil {
		return nil
	}
	bundles, bundleErr := verifyBundles(ctx, resolver, repository, target, keys)
	if bundleErr == nil {
		return nil
	}
	err = errors.Join(ignoreNotFound(simpleErr), ignoreNotFound(bundleErr))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case found+bundles == 0 && err == nil:
		return fmt.Errorf("%w: %s@%s has no signature", ErrInvalid, repository, target)
	case found+bundles == 0:
		return fmt.Errorf("%w: its signatures cannot be read: %w", ErrInvalid, err)
	default:
		return fmt.Errorf("%w: %s@%s: %w", ErrInvalid, repository, target, err)
	}
}

func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// verifySimple checks the signatures under the tag of a digest, the last one first, because cosign appends. It returns how many it checked.
func verifySimple(ctx context.Context, resolver remotes.Resolver, repository, subject string, keys *trust.Parsed) (int, error) {
	ref := repository + ":" + trust.SimpleTag(subject)
	_, target, err := resolver.Resolve(ctx, ref)
	if err != nil {
		return 0, err
	}
	manifest, fetcher, err := fetchManifest(ctx, resolver, ref, target)
	if err != nil {
		return 0, err
	}
	n, errs := 0, []error(nil)
	for _, l := range slices.Backward(manifest.Layers) {
		if l.MediaType != trust.SimpleType || n == maxSignatures {
			continue
		}
		n++
		payload, err := registry.ReadBlob(ctx, fetcher, l, maxSignature)
		if err == nil {
			err = keys.Simple(payload, l.Annotations[trust.SimpleAnnotation], subject)
		}
		if err == nil {
			return n, nil
		}
		errs = append(errs, err)
	}
	return n, joinOrNotFound(errs)
}

// verifyBundles checks the bundles that refer to an image. It returns how many it checked.
func verifyBundles(ctx context.Context, resolver remotes.Resolver, repository string, target digest.Digest, keys *trust.Parsed) (int, error) {
	fetcher, err := resolver.Fetcher(ctx, repository+"@"+target.String())
	if err != nil {
		return 0, err
	}
	referrers, ok := fetcher.(remotes.ReferrersFetcher)
	if !ok {
		return 0, errdefs.ErrNotFound
	}
	all, err := referrers.FetchReferrers(ctx, target)
	if err != nil {
		return 0, err
	}
	n, errs := 0, []error(nil)
	for _, r := range all {
		if !strings.HasPrefix(r.ArtifactType, trust.BundleType) || n == maxSignatures {
			continue
		}
		n++
		manifest, fetcher, err := fetchManifest(ctx, resolver, repository+"@"+r.Digest.String(), r)
		if err == nil {
			err = verifyBundle(ctx, fetcher, manifest, target.String(), keys)
		}
		if err == nil {
			return n, nil
		}
		errs = append(errs, err)
	}
	return n, joinOrNotFound(errs)
}

func verifyBundle(ctx context.Context, fetcher remotes.Fetcher, manifest *ocispec.Manifest, subject string, keys *trust.Parsed) error {
	if len(manifest.Layers) != 1 {
		return fmt.Errorf("a bundle with %d layers instead of one", len(manifest.Layers))
	}
	data, err := registry.ReadBlob(ctx, fetcher, manifest.Layers[0], maxSignature)
	if err != nil {
		return err
	}
	return keys.Bundle(data, subject)
}

// joinOrNotFound joins errors, and returns ErrNotFound if there are none.
func joinOrNotFound(errs []error) error {
	if len(errs) == 0 {
		return errdefs.ErrNotFound
	}
	return registry.JoinDistinct(errs...)
}

func fetchManifest(ctx context.Context, resolver remotes.Resolver, ref string, target ocispec.Descriptor) (*ocispec.Manifest, remotes.Fetcher, error) {
	fetcher, err := resolver.Fetcher(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if !images.IsManifestType(target.MediaType) {
		return nil, nil, registry.Unfit("a signature of type %s", target.MediaType)
	}
	data, err := registry.ReadBlob(ctx, fetcher, target, registry.MaxManifest)
	if err != nil {
		return nil, nil, err
	}
	manifest := &ocispec.Manifest{}
	if err := json.Unmarshal(data, manifest); err != nil {
		return nil, nil, registry.Unfit("the manifest of a signature: %v", err)
	}
	return manifest, fetcher, nil
}
