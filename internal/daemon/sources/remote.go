package sources

import (
	"context"
	"errors"
	"log/slog"

	"monopod/internal/config"
	"monopod/runner/ctrd/image/registry"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// remote returns the sources of the key `sources`, in its order.
func remote(cfg *config.Loaded, log *slog.Logger) []watcher.Source {
	var out []watcher.Source
	for i := range cfg.RemoteSources {
		s := &cfg.RemoteSources[i]
		if ref, ok := config.OciReference(s.URL); ok {
			out = append(out, ociSource(cfg, s, ref, log))
		} else {
			out = append(out, httpSource(cfg, s, log))
		}
	}
	return out
}

func httpSource(cfg *config.Loaded, s *config.RemoteSource, log *slog.Logger) watcher.Source {
	verify, detached := s.Signature.Verification()
	c := fetch.HTTPConfig{
		Name: s.Name, URL: s.URL, Header: map[string][]string{}, CheckFrequency: s.Period, Timeout: s.Timeout, MaxSize: s.MaxBytes(),
		Trust: fetch.Trust{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile},
		Load:  PartialLoader(s.Name, cfg.Policy(s.Name)), Atomic: s.Atomic, Verify: verify, Detached: detached, Copy: cfg.CopyOf(s.Name), Log: log,
	}
	for _, h := range s.Headers {
		if h.ValueFile != "" {
			c.HeaderFiles = append(c.HeaderFiles, fetch.HeaderFile{Name: h.Name, Before: h.Value, File: h.ValueFile})
			continue
		}
		c.Header[h.Name] = append(c.Header[h.Name], h.Value)
	}
	return fetch.NewHTTPSource(c)
}

// ociSource returns the source of an entry whose URL starts with oci://.
func ociSource(cfg *config.Loaded, s *config.RemoteSource, ref string, log *slog.Logger) watcher.Source {
	verify, detached := s.Signature.Verification()
	return fetch.NewOCISource(fetch.OCIConfig{
		Name: s.Name, Reference: ref, Registry: imageRegistry{registry.NewArtifacts(cfg.RegistryAccess(log))}, Period: s.Period, Timeout: s.Timeout, MaxSize: s.MaxBytes(),
		Load: PartialLoader(s.Name, cfg.Policy(s.Name)), Atomic: s.Atomic, Verify: verify, Detached: detached, Copy: cfg.CopyOf(s.Name), Log: log,
	})
}

// imageRegistry fetches artifacts with the registry access of images: mirrors, credentials, certificates.
type imageRegistry struct{ artifacts }

// artifacts is registry.Artifacts.
type artifacts interface {
	Fetch(ctx context.Context, reference, known string, limit int64) (*registry.Artifact, error)
	Close()
}

// Artifact implements fetch.Registry.
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
