package image

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

	"monopod/runner"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/trust"
)

// labelVerified marks image records whose signature was checked. Its value names the keys and what they have signed: a record
// may come to stand for something else, and keeps its labels when an archive is imported.
const labelVerified = "monopod.dev/verified"

// verifiedBy is the value of labelVerified.
func verifiedBy(keys *trust.Parsed, target string) string { return keys.Fingerprint + "@" + target }

// Bounds of what is read of signatures: how many of an image, and how many bytes of each.
const (
	maxSignatures = 64
	maxSignature  = 256 << 10
)

// errUnsigned says that nobody who may has signed an image.
var errUnsigned = errors.New("signature validation failed")

// rule returns the rule for an image; nil: it needs no more than to be there. The error says that it must not be used.
func (s *Store) rule(name string) (*trust.Rule, error) {
	r, err := s.cfg.Rules.For(name)
	if err != nil {
		return nil, err
	}
	if r == nil || !r.Signed() {
		return nil, nil //nolint:nilnil // it needs no signature
	}
	return r, nil
}

// vouched checks the signature of an image that is here. What was found good once needs no registry any more, until
// other keys count.
func (s *Store) vouched(ctx context.Context, img *Image, rule *trust.Rule) error {
	if rule == nil {
		return nil
	}
	keys, err := rule.Keys.Parse()
	if err != nil {
		return err
	}
	good := verifiedBy(keys, img.Target)
	same, err := s.client.ImageService().List(ctx, fmt.Sprintf("target.digest==%q", img.Target))
	if err != nil {
		return err
	}
	archives := s.archivesByName()
	for i := range same {
		labels := same[i].Labels
		// What has come from a registry since is not what the archive of that name has brought.
		if labels[labelVerified] == good || rule.TrustPreloaded && labels[labelPulled] == "" && len(archives[same[i].Name]) > 0 {
			return nil
		}
	}
	if err := s.verifyAsAny(ctx, img, keys); err != nil {
		return err
	}
	for i := range same {
		same[i].Labels = map[string]string{labelVerified: good}
		if _, err := s.client.ImageService().Update(ctx, same[i], "labels."+labelVerified); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// verifyAsAny is verify with each of the logins for an image, one after the other.
func (s *Store) verifyAsAny(ctx context.Context, img *Image, keys *trust.Parsed) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, perr := s.withLogins(ctx, img.Name)
	var errs []error
	for _, login := range registry.Candidates(ctx, img.Name) {
		err := func() error {
			w := s.way(img.Name, login, registry.SecretLogins(ctx), func() { cancel(errStalled) })
			defer w.Close()
			return verify(ctx, w.Resolver(ctx), img.Name, digest.Digest(img.Target), keys)
		}()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	return joinOnce(append(errs, perr))
}

// verify looks for a signature of an image in its repository. The error wraps errUnsigned if there is no good one.
func verify(ctx context.Context, resolver remotes.Resolver, name string, target digest.Digest, keys *trust.Parsed) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return err
	}
	repository := reference.TrimNamed(named).String()
	found, simpleErr := simpleSigned(ctx, resolver, repository, target.String(), keys)
	if simpleErr == nil {
		return nil
	}
	bundles, bundleErr := bundleSigned(ctx, resolver, repository, target, keys)
	if bundleErr == nil {
		return nil
	}
	err = errors.Join(unlessAbsent(simpleErr), unlessAbsent(bundleErr))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case found+bundles == 0 && err == nil:
		return fmt.Errorf("%w: %s@%s has no signature", errUnsigned, repository, target)
	case found+bundles == 0:
		return fmt.Errorf("%w: its signatures cannot be read: %w", errUnsigned, err)
	default:
		return fmt.Errorf("%w: %s@%s: %w", errUnsigned, repository, target, err)
	}
}

func unlessAbsent(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// simpleSigned looks at the signatures under the tag of a digest, the last ones first: cosign adds to those that are there. It
// returns how many it has looked at.
func simpleSigned(ctx context.Context, resolver remotes.Resolver, repository, subject string, keys *trust.Parsed) (int, error) {
	ref := repository + ":" + trust.SimpleTag(subject)
	_, target, err := resolver.Resolve(ctx, ref)
	if err != nil {
		return 0, err
	}
	manifest, fetcher, err := artifactOf(ctx, resolver, ref, target)
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
	return n, orAbsent(errs)
}

// bundleSigned looks at the bundles that refer to an image. It returns how many there are.
func bundleSigned(ctx context.Context, resolver remotes.Resolver, repository string, target digest.Digest, keys *trust.Parsed) (int, error) {
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
		manifest, fetcher, err := artifactOf(ctx, resolver, repository+"@"+r.Digest.String(), r)
		if err == nil {
			err = oneBundle(ctx, fetcher, manifest, target.String(), keys)
		}
		if err == nil {
			return n, nil
		}
		errs = append(errs, err)
	}
	return n, orAbsent(errs)
}

func oneBundle(ctx context.Context, fetcher remotes.Fetcher, manifest *ocispec.Manifest, subject string, keys *trust.Parsed) error {
	if len(manifest.Layers) != 1 {
		return errors.New("a bundle that is not one layer")
	}
	data, err := registry.ReadBlob(ctx, fetcher, manifest.Layers[0], maxSignature)
	if err != nil {
		return err
	}
	return keys.Bundle(data, subject)
}

// orAbsent joins errors; without any there was nothing.
func orAbsent(errs []error) error {
	if len(errs) == 0 {
		return errdefs.ErrNotFound
	}
	return joinOnce(errs)
}

// joinOnce is errors.Join without those that say the same as another one before them.
func joinOnce(errs []error) error {
	told := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || told[err.Error()] {
			return true
		}
		told[err.Error()] = true
		return false
	})...)
}

func artifactOf(ctx context.Context, resolver remotes.Resolver, ref string, target ocispec.Descriptor) (*ocispec.Manifest, remotes.Fetcher, error) {
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

// policyError is the StepError of an image that cannot be used because of its signature.
func policyError(ref string, err error) error {
	reason := runner.ReasonErrImagePull
	if errors.Is(err, errUnsigned) {
		reason = runner.ReasonSignatureValidationFailed
	}
	return stepError(ref, reason, fmt.Errorf("image %q: %w", ref, err))
}
