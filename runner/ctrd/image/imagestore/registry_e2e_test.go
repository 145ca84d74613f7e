//go:build e2e

package imagestore_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/registrytest"
)

// private is a registry with TLS that requires a login and records the users.
type private struct {
	addr string
	ca   []byte

	mu    sync.Mutex
	shown []string
	down  bool
}

func newPrivate(t *testing.T, user, password string) *private {
	t.Helper()
	p := &private{}
	handler := fake.New(fake.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, pw, ok := r.BasicAuth()
		p.mu.Lock()
		down := p.down
		if ok {
			p.shown = append(p.shown, u+":"+pw)
		}
		p.mu.Unlock()
		switch {
		case down:
			w.WriteHeader(http.StatusBadGateway)
		case user != "" && (u != user || pw != password):
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	p.addr = strings.TrimPrefix(srv.URL, "https://")
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return p
}

// push puts an image into it.
func (p *private) push(t *testing.T, name, user, password string) {
	t.Helper()
	insecure := http.DefaultTransport.(*http.Transport).Clone()
	insecure.TLSClientConfig = clientTLS(p.ca)
	t.Cleanup(insecure.CloseIdleConnections)
	testimages.Push(t, p.addr+"/"+name, testimages.Busybox(t, nil), remote.WithTransport(insecure), remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = nil
}

func (p *private) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.shown)
	slices.Sort(all)
	return slices.Compact(all)
}

// hostDir is where the settings of a registry are.
func hostDir(t *testing.T, root, host string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(root, strings.ReplaceAll(host, ":", "_")+"_")
	imagetest.Check(t, os.MkdirAll(dir, 0o755))
	for name, text := range files {
		imagetest.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

func authFile(t *testing.T, logins map[string]string) string {
	t.Helper()
	var auths []string
	for host, login := range logins {
		auths = append(auths, fmt.Sprintf(`%q: {"auth": %q}`, host, base64.StdEncoding.EncodeToString([]byte(login))))
	}
	file := filepath.Join(t.TempDir(), "config.json")
	imagetest.Check(t, os.WriteFile(file, []byte(`{"auths": {`+strings.Join(auths, ", ")+`}}`), 0o600))
	return file
}

func TestPrivateRegistriesWithTheirOwnAuthorities(t *testing.T) {
	c := imagetest.Containerd(t)
	reg := newPrivate(t, "me", "secret")
	reg.push(t, "app:1", "me", "secret")
	root := t.TempDir()
	access := registry.Access{HostsDirs: []string{filepath.Join(root, "none"), root}, AuthFile: authFile(t, map[string]string{reg.addr: "me:secret"})}
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Access = access })
	ref := reg.addr + "/app:1"
	// A server on loopback with a certificate of an unknown authority.
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); imagetest.Reason(err) != runner.ReasonErrImagePull {
		t.Errorf("without its authority: %v", err)
	}
	hostDir(t, root, reg.addr, map[string]string{"hosts.toml": "server = \"https://" + reg.addr + "\"\nca = [\n"})
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); err == nil || !strings.Contains(err.Error(), "hosts.toml") {
		t.Errorf("a file that cannot be read: %v", err)
	}
	hostDir(t, root, reg.addr, map[string]string{"hosts.toml": "server = \"https://" + reg.addr + "\"\nca = \"ca.pem\"\n", "ca.pem": string(reg.ca)})
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); err != nil {
		t.Errorf("with hosts.toml: %v", err)
	}
	a := registry.NewArtifacts(access)
	defer a.Close()
	if _, err := a.Fetch(t.Context(), ref, "", 1<<20); err == nil || !strings.Contains(err.Error(), "more than maxSize") {
		t.Errorf("artifacts: %v", err) // it came as far as the size of the layer
	}
}

func TestMirrorsAreAskedFirstAndShownTheirOwnLoginsOnly(t *testing.T) {
	c := imagetest.Containerd(t)
	origin, mirror := newPrivate(t, "me", "origin-secret"), newPrivate(t, "mirror-user", "mirror-secret")
	origin.push(t, "team/app:1", "me", "origin-secret")
	origin.push(t, "team/other:1", "me", "origin-secret")
	mirror.push(t, "team/app:1", "mirror-user", "mirror-secret")
	root := t.TempDir()
	hostDir(t, root, origin.addr, map[string]string{
		"hosts.toml": fmt.Sprintf("server = \"https://%s\"\nca = \"ca.pem\"\n\n[host.\"https://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"ca.pem\"\n", origin.addr, mirror.addr),
		"ca.pem":     string(origin.ca) + string(mirror.ca),
	})
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) {
		cfg.HostsDirs = []string{root}
		cfg.AuthFile = authFile(t, map[string]string{mirror.addr: "mirror-user:mirror-secret"})
	})
	ctx := registry.WithLogins(t.Context(), []registry.Login{{Pattern: origin.addr, User: "me", Password: "origin-secret"}})
	img, err := s.Ensure(ctx, origin.addr+"/team/app:1", corev1.PullAlways)
	imagetest.Check(t, err)
	if !strings.HasPrefix(img.Digest, origin.addr+"/team/app@") {
		t.Errorf("it is called %s", img.Digest)
	}
	if len(origin.seen()) != 0 || !slices.Equal(mirror.seen(), []string{"mirror-user:mirror-secret"}) {
		t.Errorf("the origin was shown %v, the mirror %v", origin.seen(), mirror.seen())
	}
	// What the mirror does not have, and all while it is down, comes from the origin.
	if _, err := s.Ensure(ctx, origin.addr+"/team/other:1", corev1.PullAlways); err != nil {
		t.Error(err)
	}
	mirror.mu.Lock()
	mirror.down = true
	mirror.mu.Unlock()
	if _, err := s.Ensure(ctx, origin.addr+"/team/app:1", corev1.PullAlways); err != nil {
		t.Error(err)
	}
	if got := origin.seen(); !slices.Equal(got, []string{"me:origin-secret"}) {
		t.Errorf("the origin was shown %v", got)
	}
	if got := mirror.seen(); slices.Contains(got, "me:origin-secret") {
		t.Errorf("the mirror was shown %v", got)
	}
}

// TestAMirrorWithWrongContentIsLeftForTheRegistry also with what containerd keeps of a blob that is not complete, or not the right one.
func TestAMirrorWithWrongContentIsLeftForTheRegistry(t *testing.T) {
	c := imagetest.Containerd(t)
	half := func(rw http.ResponseWriter, from, b []byte) {
		rw.Header().Set("Content-Length", fmt.Sprint(len(from)))
		_, _ = rw.Write(b)
	}
	for name, spoil := range map[string]func(rw http.ResponseWriter, blob []byte){
		"half":                 func(rw http.ResponseWriter, blob []byte) { half(rw, blob, blob[:len(blob)/2]) },
		"half of other bytes":  func(rw http.ResponseWriter, blob []byte) { half(rw, blob, make([]byte, len(blob)/2)) },
		"nothing":              func(rw http.ResponseWriter, blob []byte) { half(rw, blob, nil) },
		"all of it other":      func(rw http.ResponseWriter, blob []byte) { half(rw, blob, make([]byte, len(blob))) },
		"a page instead of it": func(rw http.ResponseWriter, _ []byte) { _, _ = rw.Write([]byte("<html>login</html>")) },
	} {
		t.Run(name, func(t *testing.T) {
			origin, mirror := registrytest.New(t), registrytest.New(t)
			img := testimages.Busybox(t, nil, testimages.File{Path: "etc/which", Content: []byte(name), Mode: 0o644})
			testimages.Push(t, origin.Host+"/app:1", img)
			testimages.Push(t, mirror.Host+"/app:1", img)
			answer := func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
					return false
				}
				resp, err := http.Get(origin.URL + r.URL.Path)
				if err != nil {
					t.Error(err)
					return false
				}
				defer resp.Body.Close()
				blob, err := io.ReadAll(resp.Body)
				imagetest.Check(t, err)
				spoil(rw, blob)
				return true
			}
			mirror.Before.Store(&answer)
			root := t.TempDir()
			hostDir(t, root, origin.Host, map[string]string{
				"hosts.toml": fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", origin.URL, mirror.URL),
			})
			s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.HostsDirs = []string{root} })
			if _, err := s.Ensure(t.Context(), origin.Host+"/app:1", corev1.PullIfNotPresent); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPluginsGiveTheLoginsOfPulls(t *testing.T) {
	c := imagetest.Containerd(t)
	addr := testimages.AuthRegistry(t, "user-of-"+"x", "pw")
	testimages.Push(t, addr+"/app:1", testimages.Busybox(t, nil), remote.WithAuth(&authn.Basic{Username: "user-of-x", Password: "pw"}))
	p, dir := plugins(t, registrytest.ProvidersHead+registrytest.Entry("p", addr, ""), map[string]string{"p": strings.ReplaceAll(registrytest.Answering("Registry", "", addr), "user-of-"+addr, "user-of-x")})
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Providers = p })
	if _, err := s.Ensure(t.Context(), addr+"/app:1", corev1.PullAlways); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(registrytest.Asked(t, dir), "CredentialProviderRequest"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	imagetest.Check(t, os.WriteFile(filepath.Join(dir, "p"), []byte("#!/bin/sh\necho the cloud is down >&2\nexit 1\n"), 0o755))
	p.Cache = map[registry.CacheKey]registry.CachedLogins{}
	if _, err := s.Ensure(t.Context(), addr+"/app:1", corev1.PullAlways); err == nil || !strings.Contains(err.Error(), "the cloud is down") {
		t.Errorf("it does not say why there is no login: %v", err)
	}
}

func TestPullsTakeNoMoreOfTheNetworkThanTheyMay(t *testing.T) {
	c := imagetest.Containerd(t)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: "x", Content: imagetest.Noise(5, 1<<20), Mode: 0o644}}, nil))
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Limits = registry.Limits{Bandwidth: 2 << 20, Parallel: 1} })
	began := time.Now()
	_, err := s.Ensure(t.Context(), ref, corev1.PullAlways)
	imagetest.Check(t, err)
	if took := time.Since(began); took < 300*time.Millisecond { // of 500, and a quarter of a second may come at once
		t.Errorf("a megabyte at 2 MB/s came within %s", took)
	}
}

func plugins(t *testing.T, config string, programs map[string]string) (p *registry.Providers, dir string) {
	t.Helper()
	file, dir := registrytest.Plugins(t, config, programs)
	return registry.NewProviders(file, dir, slog.New(slog.DiscardHandler)), dir
}

// clientTLS trusts one authority.
func clientTLS(ca []byte) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
