package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"
	dockerconfig "github.com/docker/cli/cli/config"
)

// stallTimeout ends a pull when the registry has sent nothing for so long, as CRI's image_pull_progress_timeout.
const stallTimeout = 5 * time.Minute

var errStalled = errors.New("no data from the registry for 5 minutes")

// refresh makes the image what the registry says it is now. When that is what is here already, nothing but
// the question goes over the network. Logins are tried one after the other.
func (s *Store) refresh(ctx context.Context, name string) (*Image, error) {
	t := s.running.begin(name)
	defer s.running.end(t)
	var errs []error
	for _, login := range candidates(ctx, name) {
		img, err := s.refreshAs(ctx, name, login, t)
		if err == nil || ctx.Err() != nil {
			return img, err
		}
		errs = append(errs, err)
		if errors.Is(err, errStalled) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// refreshAs shows the registry one login; nil means that of AuthFile.
func (s *Store) refreshAs(ctx context.Context, name string, login *Login, t *transfer) (*Image, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	transport := newTransport()
	defer transport.CloseIdleConnections()
	resolver := newResolver(s.cfg.AuthFile, &watchdog{next: transport, stalled: func() { cancel(errStalled) }}, login)
	img, err := s.refreshFrom(ctx, resolver, name, t)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return nil, fmt.Errorf("%w: %w", errStalled, err)
	}
	return img, err
}

func (s *Store) refreshFrom(ctx context.Context, resolver remotes.Resolver, name string, t *transfer) (_ *Image, err error) {
	_, target, err := resolver.Resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	digest := repoDigest(name, target.Digest.String())
	rec, err := s.client.ImageService().Get(ctx, name)
	if err == nil && rec.Target.Digest == target.Digest && rec.Labels[labelPulled] == digest {
		if img, err := s.present(ctx, name); err == nil {
			return img, nil
		}
	}
	ctx, done, err := s.resumable(ctx, flightKey(ctx, name), name)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	t.expect(target)
	defer s.cfg.OnNew() // also a part of it takes room
	_, err = s.client.Pull(ctx, name,
		client.WithResolver(resolver),
		client.WithImageHandlerWrapper(t.watch),
		client.WithPullUnpack,
		client.WithPullSnapshotter(s.cfg.Snapshotter),
		client.WithUnpackOpts([]client.UnpackOpt{synced()}),
		client.WithPullLabel(labelPulled, digest))
	if err != nil {
		return nil, err
	}
	return s.present(ctx, name)
}

// repoDigest is what Kubernetes shows as imageID: the repository without tag, at the digest.
func repoDigest(name, digest string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name + "@" + digest
	}
	return reference.TrimNamed(named).String() + "@" + digest
}

// newResolver talks to registries: https, but plain http to loopback addresses, as login or with the credentials of authFile.
func newResolver(authFile string, rt http.RoundTripper, login *Login) remotes.Resolver {
	c := &http.Client{Transport: rt}
	return docker.NewResolver(docker.ResolverOptions{
		Hosts: docker.ConfigureDefaultRegistries(
			docker.WithPlainHTTP(docker.MatchLocalhost),
			docker.WithClient(c),
			docker.WithAuthorizer(docker.NewDockerAuthorizer(
				docker.WithAuthClient(c),
				docker.WithAuthCreds(func(host string) (string, string, error) {
					if login != nil {
						user, secret := login.credentials()
						return user, secret, nil
					}
					return credentials(authFile, host)
				}),
			)),
		),
	})
}

// credentials looks a registry up in a docker config.json. It is read for each pull, so it can be changed
// while we run. An identity token comes without a user name.
func credentials(file, host string) (user, secret string, err error) {
	if file == "" {
		return "", "", nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("registry credentials: %w", err)
	}
	defer func() { _ = f.Close() }()
	conf, err := dockerconfig.LoadFromReader(f)
	if err != nil {
		return "", "", fmt.Errorf("registry credentials %s: %w", file, err)
	}
	if host == "registry-1.docker.io" || host == "docker.io" {
		host = "https://index.docker.io/v1/" // the key under which docker login stores it
	}
	auth, err := conf.GetAuthConfig(host)
	if err != nil {
		return "", "", fmt.Errorf("registry credentials %s: %s: %w", file, host, err)
	}
	if auth.IdentityToken != "" {
		return "", auth.IdentityToken, nil
	}
	return auth.Username, auth.Password, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          10,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
	}
}
