// Package registry talks to registries: who logs in where, which mirrors and transports are used, how much at once, and artifacts that are
// no images. It must not store anything, which package image does.
package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	hostsconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	dockerconfig "github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/types"
	"github.com/pelletier/go-toml/v2"

	"monopod/internal/regular"
)

// Access is how registries are reached, and who we are there. All files are read when they are needed, so that they can
// be changed while we run.
type Access struct {
	// AuthFile is a docker config.json with registry credentials; empty or absent: none.
	AuthFile string
	// HostsDirs have a directory for each registry, with a hosts.toml or certificates, as containerd's certs.d. The first
	// one that has one for a registry counts.
	HostsDirs []string
	// Providers are the credential provider plug-ins of a kubelet; nil: none.
	Providers *Providers
}

// Way is the way to registries of one pull.
type Way struct {
	Access
	// Name is the image, login who asks for it; nil: whom AuthFile names. logins are all that there are.
	Name   string
	Login  *Login
	Logins []Login
	// Wrap is put around each transport.
	Wrap func(http.RoundTripper) http.RoundTripper

	transports []*http.Transport
}

// Close gives back idle connections.
func (w *Way) Close() {
	for _, t := range w.transports {
		t.CloseIdleConnections()
	}
}

// Resolver talks to registries: https, but plain http to loopback addresses, unless a directory of HostsDirs says more.
func (w *Way) Resolver(ctx context.Context) remotes.Resolver {
	ask := func(host string) (string, string, error) { return w.credentials(ctx, host) }
	usual := w.usualHosts(ask)
	return docker.NewResolver(docker.ResolverOptions{Hosts: func(host string) ([]docker.RegistryHost, error) {
		dir, err := w.hostsDir(host)
		if err != nil || dir == "" {
			return orHosts(usual, host, err)
		}
		return hostsconfig.ConfigureHosts(ctx, hostsconfig.HostOptions{
			HostDir: func(string) (string, error) { return dir, nil }, Credentials: ask, UpdateClient: w.adopt,
		})(host)
	}})
}

func orHosts(usual docker.RegistryHosts, host string, err error) ([]docker.RegistryHost, error) {
	if err != nil {
		return nil, err
	}
	return usual(host)
}

func (w *Way) usualHosts(credentials func(host string) (string, string, error)) docker.RegistryHosts {
	t := newTransport()
	w.transports = append(w.transports, t)
	c := &http.Client{Transport: discreet{w.Wrap(t)}}
	return docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchLocalhost),
		docker.WithClient(c),
		docker.WithAuthorizer(docker.NewDockerAuthorizer(docker.WithAuthClient(c), docker.WithAuthCreds(credentials))),
	)
}

// adopt makes a client that was made by what a directory says behave like the usual one.
func (w *Way) adopt(c *http.Client) error {
	t, ok := c.Transport.(*http.Transport)
	if !ok {
		return nil // it has been here before
	}
	t.ResponseHeaderTimeout = responseTimeout
	w.transports = append(w.transports, t)
	c.Transport = discreet{w.Wrap(t)}
	return nil
}

// hostsDir finds the directory that says how to reach a registry; empty: there is none. A hosts.toml that cannot be read
// is an error: without it the registry itself might be asked instead of its mirror.
func (a *Access) hostsDir(host string) (string, error) {
	for _, root := range a.HostsDirs {
		dir, err := hostsconfig.HostDirFromRoot(root)(host)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("settings of registry %s: %w", host, err)
		}
		b, err := regular.ReadFile(filepath.Join(dir, "hosts.toml"), maxConfigFile)
		if err == nil {
			err = toml.Unmarshal(b, &map[string]any{})
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("settings of registry %s: %s: %w", host, filepath.Join(dir, "hosts.toml"), err)
		}
		return dir, nil
	}
	return "", nil
}

// credentials are those for a host. A login that is meant for the registry of the image is shown to no mirror of it.
func (w *Way) credentials(ctx context.Context, host string) (user, secret string, err error) {
	registry, repository, _ := strings.Cut(w.Name, "/")
	if host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if w.Login != nil && host == registry {
		user, secret = w.Login.credentials()
		return user, secret, nil
	}
	if host != registry {
		for i := range w.Logins {
			if w.Logins[i].matches(host + "/" + repository) {
				user, secret = w.Logins[i].credentials()
				return user, secret, nil
			}
		}
	}
	return credentials(ctx, w.AuthFile, host)
}

// maxConfigFile is more than the configuration of registries or of their plug-ins has.
const maxConfigFile = 4 << 20

// credentials looks a registry up in a docker config.json, which may name credential helpers. It is read for each pull,
// so it can be changed while we run. An identity token comes without a user name.
func credentials(ctx context.Context, file, host string) (user, secret string, err error) {
	if file == "" {
		return "", "", nil
	}
	b, err := regular.ReadFile(file, maxConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("registry credentials: %w", err)
	}
	conf, err := dockerconfig.LoadFromReader(bytes.NewReader(b))
	if err != nil {
		return "", "", fmt.Errorf("registry credentials %s: %w", file, err)
	}
	if host == "registry-1.docker.io" || host == "docker.io" {
		host = "https://index.docker.io/v1/" // the key under which docker login stores it
	}
	auth, err := patiently(ctx, helperPatience, func() (types.AuthConfig, error) { return conf.GetAuthConfig(host) })
	if err != nil {
		return "", "", fmt.Errorf("registry credentials %s: %s: %w", file, host, err)
	}
	if auth.IdentityToken != "" {
		return "", auth.IdentityToken, nil
	}
	return auth.Username, auth.Password, nil
}

// helperPatience is how long a credential helper may take.
const helperPatience = time.Minute

// patiently waits for a result that cannot be cancelled, but not for ever, and not longer than ctx.
func patiently[T any](ctx context.Context, patience time.Duration, get func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	got := make(chan result, 1)
	go func() {
		v, err := get()
		got <- result{v, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-got:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	case <-timer.C:
		var none T
		return none, fmt.Errorf("no answer for %s", patience)
	}
}

// responseTimeout is how long a registry may take until it begins to answer.
const responseTimeout = time.Minute

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          10,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: responseTimeout,
	}
}

// Normalize completes a reference as docker does: docker.io, library, latest. With a digest a tag means nothing.
func Normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", ref, err)
	}
	return named.String(), nil
}
