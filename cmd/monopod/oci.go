package main

import (
	"context"
	"errors"
	"strings"

	"monopod/runner/ctrd/image"
	"monopod/watcher"
)

const ociScheme = "oci"

// ociReference returns the reference in the URL of an OCI source.
func ociReference(address string) (string, bool) { return strings.CutPrefix(address, ociScheme+"://") }

// ociSource makes the source of an entry whose URL begins with oci://.
func (a *App) ociSource(s *RemoteSource, ref string) watcher.Source {
	verify, detached := s.Signature.verification()
	return watcher.NewOCISource(watcher.OCIConfig{
		Name: s.Name, Reference: ref, Registry: imageRegistry{image.NewArtifacts(a.cfg.registryAccess(a.log))}, Period: s.Period, Timeout: s.Timeout, MaxSize: s.maxBytes(),
		Load: loadParts(s.Name, a.cfg.policyOf(s)), Atomic: s.Atomic, Verify: verify, Detached: detached, Copy: a.cfg.copyOf(s.Name), Log: a.log,
	})
}

// imageRegistry is the way from sources to registries, which is that of images.
type imageRegistry struct{ *image.Artifacts }

// Artifact implements watcher.Registry.
func (r imageRegistry) Artifact(ctx context.Context, reference, known string, limit int64) (*watcher.Artifact, error) {
	got, err := r.Fetch(ctx, reference, known, limit)
	if errors.Is(err, image.ErrSame) {
		return nil, watcher.ErrNotModified
	}
	if _, unfit := errors.AsType[*image.UnfitError](err); unfit {
		return nil, &watcher.Refusal{Err: err}
	}
	if err != nil {
		return nil, err
	}
	out := &watcher.Artifact{Digest: got.Digest}
	for _, l := range got.Layers {
		out.Layers = append(out.Layers, watcher.Layer(l))
	}
	return out, nil
}

// checkOCI finds what is wrong with an entry whose URL begins with oci://.
func (s *RemoteSource) checkOCI(ref string, bad func(key, msg, hint string)) {
	if err := image.CheckArtifact(ref); err != nil {
		bad("url", err.Error(), "write it as oci://registry.example/repository:tag; credentials belong to registryConfig")
	}
	for _, of := range []struct {
		key   string
		given bool
	}{{"headers", len(s.Headers) > 0}, {"caFile", s.CAFile != ""}, {"certFile", s.CertFile != ""}, {"keyFile", s.KeyFile != ""}} {
		if of.given {
			bad(of.key, "is for http and https URLs only", "registries are asked as for images; their credentials belong to registryConfig")
		}
	}
}
