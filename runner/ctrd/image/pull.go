package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/trust"
)

var errStalled = errors.New("no data from the registry for 5 minutes")

// refresh makes the image what the registry says it is now. When that is what is here already, nothing but
// the question goes over the network. Logins are tried one after the other.
func (s *Store) refresh(ctx context.Context, name string, rule *trust.Rule) (*Image, error) {
	t := s.running.begin(name)
	defer s.running.end(t)
	t.rule = rule
	t.key = registry.FlightKey(ctx, name) // without the logins of plug-ins, which come and go
	over, err := s.limits.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer over()
	ctx, perr := s.withLogins(ctx, name)
	var errs []error
	for _, login := range registry.Candidates(ctx, name) {
		img, err := s.refreshAs(ctx, name, login, t)
		if err == nil || ctx.Err() != nil {
			return img, err
		}
		errs = append(errs, err)
		if errors.Is(err, errStalled) || errors.Is(err, errUnsigned) || errors.Is(err, bounded.ErrFull) {
			break
		}
	}
	return nil, joinOnce(append(errs, perr)) // that of plug-ins may be why
}

// withLogins adds those that plug-ins have for an image.
func (s *Store) withLogins(ctx context.Context, name string) (context.Context, error) {
	logins, err := s.cfg.Providers.Logins(ctx, name)
	return registry.WithLogins(ctx, append(registry.SecretLogins(ctx), logins...)), err
}

// refreshAs shows the registry one login; nil means that of AuthFile.
func (s *Store) refreshAs(ctx context.Context, name string, login *registry.Login, t *transfer) (*Image, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := s.way(name, login, registry.SecretLogins(ctx), func() { cancel(errStalled) })
	defer w.Close()
	img, err := s.refreshFrom(ctx, w.Resolver(ctx), name, t)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return nil, fmt.Errorf("%w: %w", errStalled, err)
	}
	return img, err
}

// way is the way to the registry of an image.
func (s *Store) way(name string, login *registry.Login, logins []registry.Login, stalled func()) *registry.Way {
	return &registry.Way{Access: s.cfg.Access, Name: name, Login: login, Logins: logins, Wrap: func(next http.RoundTripper) http.RoundTripper {
		return &registry.Watchdog{Next: s.limits.Slow(next), Stalled: stalled}
	}}
}

func (s *Store) refreshFrom(ctx context.Context, resolver remotes.Resolver, name string, t *transfer) (_ *Image, err error) {
	_, target, err := resolver.Resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	resolver = resolved{resolver, name, target} // what was looked at is what is fetched
	labels := map[string]string{labelPulled: repoDigest(name, target.Digest.String())}
	if err := checkSignature(ctx, resolver, name, target, t.rule, labels); err != nil {
		return nil, err
	}
	rec, err := s.client.ImageService().Get(ctx, name)
	if err == nil && rec.Target.Digest == target.Digest && rec.Labels[labelPulled] == labels[labelPulled] && rec.Labels[labelVerified] == labels[labelVerified] {
		if img, err := s.present(ctx, name); err == nil {
			return img, nil
		}
	}
	ctx, done, err := s.resumable(ctx, t.key, name)
	if err != nil {
		return nil, err
	}
	ctx, unwatch := s.cfg.Disk.Watch(ctx)
	defer func() {
		unwatch()
		err = bounded.Cause(ctx, err)
		s.full(err, t.total())
		done(err)
	}()
	t.expect(target)
	defer s.cfg.OnNew() // also a part of it takes room
	pull := func() error {
		_, err := s.client.Pull(ctx, name,
			client.WithResolver(resolver),
			client.WithImageHandlerWrapper(func(next images.Handler) images.Handler { return t.watch(boundedMetadata(next)) }),
			client.WithPullUnpack,
			client.WithPullSnapshotter(s.cfg.Snapshotter),
			client.WithUnpackOpts([]client.UnpackOpt{synced()}),
			client.WithPullLabels(labels))
		return err
	}
	// A blob that other images have brought is not fetched again, also if it is damaged.
	if err = pull(); failedOnContent(err) && s.repaired(ctx, images.Image{Name: name, Target: target}, err) {
		err = pull()
	}
	if err != nil {
		return nil, err
	}
	return s.present(ctx, name)
}

// checkSignature checks what is asked of an image before it is fetched, and adds the label that says so.
func checkSignature(ctx context.Context, resolver remotes.Resolver, name string, target ocispec.Descriptor, rule *trust.Rule, labels map[string]string) error {
	if rule == nil {
		return nil
	}
	keys, err := rule.Keys.Parse()
	if err != nil {
		return err
	}
	labels[labelVerified] = verifiedBy(keys, target.Digest.String())
	return verify(ctx, resolver, name, target.Digest, keys)
}

// repoDigest is what Kubernetes shows as imageID: the repository without tag, at the digest.
func repoDigest(name, digest string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name + "@" + digest
	}
	return reference.TrimNamed(named).String() + "@" + digest
}

// resolved is a resolver that knows what an image is.
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
