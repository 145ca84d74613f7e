package imagegc

import (
	"context"
	"errors"
	"slices"
	"strings"

	"monopod/internal/daemon/imageservice"
	"monopod/node/localapi"
	"monopod/runner/ctrd/image"
)

func (m *Images) current() (service imageservice.Service, preloaded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.service, m.preloaded
}

// Remove implements node.Images.
func (m *Images) Remove(ctx context.Context, r localapi.ImageRemoval) (out localapi.ImagesRemoved, err error) {
	service, _ := m.current()
	if service == nil {
		return out, errors.New("images are unavailable: " + m.Pods.TroubleText())
	}
	for _, ref := range r.Images {
		done := localapi.RemovedImage{Image: ref}
		if done.Digest, err = digestOf(ctx, service, ref); err == nil {
			err = service.Remove(ctx, done.Digest, r.Force)
		}
		switch {
		case errors.Is(err, image.ErrNeeded):
			done.Error = "containers of pods use it; remove them, or use --force: they continue to run"
		case err != nil:
			done.Error = err.Error()
		}
		out.Images = append(out.Images, done)
	}
	return out, nil
}

// digestOf returns the digest of a present image, given its reference or its digest.
func digestOf(ctx context.Context, service imageservice.Service, ref string) (string, error) {
	if strings.HasPrefix(ref, "sha256:") {
		all, err := service.List(ctx)
		if err != nil {
			return "", err
		}
		for i := range all {
			if all[i].Digest == ref {
				return ref, nil
			}
		}
		return "", errors.New("no such image on this machine; `monopod images` lists them")
	}
	targets, err := service.Targets(ctx, []string{ref})
	if err != nil {
		return "", err
	}
	for digest, refs := range targets {
		if slices.Contains(refs, ref) {
			return digest, nil
		}
	}
	return "", errors.New("no such image on this machine; `monopod images` lists them")
}
