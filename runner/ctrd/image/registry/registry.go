// Package registry talks to registries. It owns logins, mirrors, transports, pull limits, and the download of artifacts that are not images;
// it must not store anything on this machine.
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

// Access configures how registries are reached and with which credentials. All files are read for each pull, so that they can be changed
// without a restart.
type Access struct {
	// AuthFile is a docker config.json with registry credentials; empty or missing: none.
	AuthFile string
	// HostsDirs contain a directory for each registry with a hosts.toml or certificates, like containerd's certs.d. The first
	// directory that has one for a registry is used.
	HostsDirs []string
	// Providers are the credential provider plug-ins of a kubelet; nil: none.
	Providers *Providers
}

// session is the access to registries during one pull.
type session struct {
	access Access
	// name is the image. login is used at its registry; nil: the login of AuthFile. logins are used at its mirrors.
	name   string
	login  *Login
	logins []Login
	// mirrors are those of the attempt.
	mirrors *mirrors
	// wrap decorates each transport.
	wrap func(http.RoundTripper) http.RoundTripper

	transports []*http.Transport
}

// close closes idle connections.
func (s *session) close() {
	for _, t := range s.transports {
		t.CloseIdleConnections()
	}
}

// resolver uses https, and plain http for loopback addresses, unless a directory of HostsDirs configures something else.
func (s *session) resolver(ctx context.Context) remotes.Resolver {
	credentials := func(host string) (string, string, error) { return s.credentials(ctx, host) }
	defaults := s.defaultHosts(credentials)
	return resolver{docker.NewResolver(docker.ResolverOptions{Hosts: func(host string) ([]docker.RegistryHost, error) {
		dir, err := s.access.hostsDir(host)
		if err != nil {
			return nil, err
		}
		configured := defaults
		if dir != "" {
			configured = hostsconfig.ConfigureHosts(ctx, hostsconfig.HostOptions{
				HostDir: func(string) (string, error) { return dir, nil }, Credentials: credentials, UpdateClient: s.adopt,
			})
		}
		hosts, err := configured(host)
		return s.mirrors.watch(bound(hosts)), err
	}})}
}

func (s *session) defaultHosts(credentials func(host string) (string, string, error)) docker.RegistryHosts {
	t := newTransport()
	s.transports = append(s.transports, t)
	c := &http.Client{Transport: answers{next: redirectGuard{s.wrap(t)}}}
	return docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchLocalhost),
		docker.WithClient(c),
		docker.WithAuthorizer(docker.NewDockerAuthorizer(docker.WithAuthClient(c), docker.WithAuthCreds(credentials))),
	)
}

// adopt gives a client that containerd made from a hosts.toml the limits and wrappers of the default client.
func (s *session) adopt(c *http.Client) error {
	t, ok := c.Transport.(*http.Transport)
	if !ok {
		return nil // adopted already
	}
	t.ResponseHeaderTimeout, t.MaxResponseHeaderBytes = responseTimeout, maxHeaders
	s.transports = append(s.transports, t)
	c.Transport = redirectGuard{s.wrap(t)}
	return nil
}

// hostsDir returns the directory with the configuration of a registry, or "". A hosts.toml that cannot be read is an error: without it
// the registry would be contacted instead of its mirror.
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

// credentials returns the credentials for a host. The login for the registry of the image is never sent to a mirror.
func (s *session) credentials(ctx context.Context, host string) (user, secret string, err error) {
	registry, repository, _ := strings.Cut(s.name, "/")
	if host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if s.login != nil && host == registry {
		user, secret = s.login.credentials()
		return user, secret, nil
	}
	if host != registry {
		for i := range s.logins {
			if s.logins[i].matches(host + "/" + repository) {
				user, secret = s.logins[i].credentials()
				return user, secret, nil
			}
		}
	}
	return credentials(ctx, s.access.AuthFile, host)
}

// maxConfigFile limits the size of configuration files of registries and plug-ins, in bytes.
const maxConfigFile = 4 << 20

// credentials returns the entry of a registry in a docker config.json, which may name credential helpers. An identity token is returned
// without a user name.
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
	auth, err := withTimeout(ctx, helperTimeout, func() (types.AuthConfig, error) { return conf.GetAuthConfig(host) })
	if err != nil {
		return "", "", fmt.Errorf("registry credentials %s: %s: %w", file, host, err)
	}
	if auth.IdentityToken != "" {
		return "", auth.IdentityToken, nil
	}
	return auth.Username, auth.Password, nil
}

// helperTimeout is the timeout of a credential helper.
const helperTimeout = time.Minute

// withTimeout waits for the result of a function that cannot be cancelled, until the timeout or the end of ctx.
func withTimeout[T any](ctx context.Context, timeout time.Duration, get func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	got := make(chan result, 1)
	go func() {
		v, err := get()
		got <- result{v, err}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-got:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	case <-timer.C:
		var none T
		return none, fmt.Errorf("no answer for %s", timeout)
	}
}

// responseTimeout is how long a registry may take to begin its response.
const responseTimeout = time.Minute

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          10,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: responseTimeout, MaxResponseHeaderBytes: maxHeaders,
	}
}

// Normalize completes a reference as docker does, with docker.io, library and latest. A tag beside a digest is dropped.
func Normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", ref, err)
	}
	return named.String(), nil
}
