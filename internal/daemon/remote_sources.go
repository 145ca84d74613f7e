package daemon

import (
	"context"
	"errors"

	"monopod/internal/config"
	"monopod/runner/ctrd/image/registry"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// remoteSources makes the sources of `sources`, in their order.
func (a *App) remoteSources() []watcher.Source {
	var out []watcher.Source
	for i := range a.cfg.RemoteSources {
		out = append(out, a.remoteSource(&a.cfg.RemoteSources[i]))
	}
	return out
}

// remoteSource makes the source of an entry, by the scheme of its URL.
func (a *App) remoteSource(s *config.RemoteSource) watcher.Source {
	if ref, ok := config.OciReference(s.URL); ok {
		return a.ociSource(s, ref)
	}
	verify, detached := s.Signature.Verification()
	cfg := fetch.HTTPConfig{
		Name: s.Name, URL: s.URL, Header: map[string][]string{}, CheckFrequency: s.Period, Timeout: s.Timeout, MaxSize: s.MaxBytes(),
		Trust: fetch.Trust{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile},
		Load:  loadParts(s.Name, a.cfg.PolicyOf(s)), Atomic: s.Atomic, Verify: verify, Detached: detached, Copy: a.cfg.CopyOf(s.Name), Log: a.Log,
	}
	for _, h := range s.Headers {
		if h.ValueFile != "" {
			cfg.HeaderFiles = append(cfg.HeaderFiles, fetch.HeaderFile{Name: h.Name, Before: h.Value, File: h.ValueFile})
			continue
		}
		cfg.Header[h.Name] = append(cfg.Header[h.Name], h.Value)
	}
	return fetch.NewHTTPSource(cfg)
}

// ociSource makes the source of an entry whose URL begins with oci://.
func (a *App) ociSource(s *config.RemoteSource, ref string) watcher.Source {
	verify, detached := s.Signature.Verification()
	return fetch.NewOCISource(fetch.OCIConfig{
		Name: s.Name, Reference: ref, Registry: imageRegistry{registry.NewArtifacts(a.cfg.RegistryAccess(a.Log))}, Period: s.Period, Timeout: s.Timeout, MaxSize: s.MaxBytes(),
		Load: loadParts(s.Name, a.cfg.PolicyOf(s)), Atomic: s.Atomic, Verify: verify, Detached: detached, Copy: a.cfg.CopyOf(s.Name), Log: a.Log,
	})
}

// imageRegistry is the way from sources to registries, which is that of images.
type imageRegistry struct{ *registry.Artifacts }

// Artifact implements watcher.Registry.
func (r imageRegistry) Artifact(ctx context.Context, reference, known string, limit int64) (*fetch.Artifact, error) {
	got, err := r.Fetch(ctx, reference, known, limit)
	if errors.Is(err, registry.ErrSame) {
		return nil, fetch.ErrNotModified
	}
	if _, unfit := errors.AsType[*registry.UnfitError](err); unfit {
		return nil, &fetch.Refusal{Err: err}
	}
	if err != nil {
		return nil, err
	}
	out := &fetch.Artifact{Digest: got.Digest}
	for _, l := range got.Layers {
		out.Layers = append(out.Layers, fetch.Layer(l))
	}
	return out, nil
}
