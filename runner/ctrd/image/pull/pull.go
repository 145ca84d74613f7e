// Package pull pulls images from registries, once for concurrent callers, and resumes interrupted pulls. It owns the pulls in progress and the
// leases of incomplete ones; it must not decide whether an image should be pulled, or when to retry.
//
// Goroutines: one per pull, which ends when its last caller has left.
package pull

import (
	"context"
	"errors"
	"log/slog"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/local"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/repair"
	"monopod/runner/ctrd/image/signature"
	"monopod/runner/ctrd/image/trust"
)

// Config of a Puller.
type Config struct {
	Local    *local.Store
	Registry *registry.Client
	Repair   *repair.Repairer
	// OnNew is called when an image was pulled, or a part of it. It must not block.
	OnNew func()
	Log   *slog.Logger
}

// Puller pulls images. It is safe for concurrent use.
type Puller struct {
	Config
	flights
	transfers transfers
}

// New returns a Puller. It does no I/O.
func New(cfg Config) *Puller {
	return &Puller{Config: cfg, flights: newFlights()}
}

// Pull updates the image to what the registry has now, with the logins of the context one after the other. If the image is up to date, only
// its digest is requested. A non-nil rule demands a signature. Concurrent calls for the same name and logins share one pull.
func (p *Puller) Pull(ctx context.Context, name string, rule *trust.Rule) (*image.Image, error) {
	key := registry.PullKey(ctx, name) // without the logins of credential providers, which change
	return p.do(ctx, key, func(ctx context.Context) (img *image.Image, err error) {
		t := p.transfers.begin(name, key)
		defer p.transfers.end(t)
		done, err := p.Registry.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		final := func(err error) bool { return errors.Is(err, signature.ErrInvalid) || errors.Is(err, bounded.ErrFull) }
		err = p.Registry.Try(ctx, name, final, func(ctx context.Context, resolver remotes.Resolver) (err error) {
			img, err = p.pullFrom(ctx, resolver, t, rule)
			return err
		})
		if err != nil {
			return nil, err
		}
		return img, nil
	})
}

func (p *Puller) pullFrom(ctx context.Context, resolver remotes.Resolver, t *transfer, rule *trust.Rule) (_ *image.Image, err error) {
	_, target, err := resolver.Resolve(ctx, t.name)
	if err != nil {
		return nil, err
	}
	if !images.IsManifestType(target.MediaType) && !images.IsIndexType(target.MediaType) {
		return nil, registry.Unfit("it is of type %.100q, not an image", target.MediaType)
	}
	resolver = resolved{resolver, t.name, target} // the digest whose signature was checked is the one that is pulled
	labels := map[string]string{image.LabelPulled: repoDigest(t.name, target.Digest.String())}
	if rule != nil {
		if labels[image.LabelVerified], err = signature.Verify(ctx, resolver, t.name, target.Digest, rule); err != nil {
			return nil, err
		}
	}
	rec, err := p.Local.Client.ImageService().Get(ctx, t.name)
	if err == nil && rec.Target.Digest == target.Digest && rec.Labels[image.LabelPulled] == labels[image.LabelPulled] && rec.Labels[image.LabelVerified] == labels[image.LabelVerified] {
		if img, err := p.Repair.Present(ctx, t.name); err == nil {
			return img, nil
		}
	}
	ctx, done, err := p.resumable(ctx, t.key, t.name)
	if err != nil {
		return nil, err
	}
	ctx, unwatch := p.Local.Disk.Watch(ctx)
	defer func() {
		unwatch()
		err = bounded.Cause(ctx, err)
		p.Local.ReportFull(err, t.total())
		done(err)
	}()
	t.expect(target)
	defer p.OnNew() // after an error, too: the partial pull needs space
	// Blobs that other images share are not fetched again, even if they are damaged.
	if err = p.fetch(ctx, resolver, t, labels); failedOnContent(err) && p.Repair.AfterError(ctx, images.Image{Name: t.name, Target: target}, err) {
		err = p.fetch(ctx, resolver, t, labels)
	}
	if err != nil {
		return nil, err
	}
	return p.Repair.Present(ctx, t.name)
}

// fetch downloads and unpacks an image.
func (p *Puller) fetch(ctx context.Context, resolver remotes.Resolver, t *transfer, labels map[string]string) error {
	_, err := p.Local.Client.Pull(ctx, t.name,
		client.WithResolver(resolver),
		client.WithImageHandlerWrapper(func(next images.Handler) images.Handler { return t.watch(local.BoundedMetadata(next)) }),
		client.WithPullUnpack,
		client.WithPullSnapshotter(p.Local.Snapshotter),
		client.WithUnpackOpts([]client.UnpackOpt{local.SyncedUnpack()}),
		client.WithPullLabels(labels))
	return err
}

// repoDigest returns what Kubernetes shows as imageID: the repository without tag, at the digest.
func repoDigest(name, digest string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name + "@" + digest
	}
	return reference.TrimNamed(named).String() + "@" + digest
}

// resolved is a resolver that returns a known target for one name.
type resolved struct {
	remotes.Resolver
	name   string
	target ocispec.Descriptor
}

// Resolve implements remotes.Resolver.
func (r resolved) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	if ref == r.name {
		return r.name, r.target, nil
	}
	return r.Resolver.Resolve(ctx, ref)
}
