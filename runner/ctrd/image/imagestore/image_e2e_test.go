//go:build e2e

package imagestore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	fake "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
)

// containerd starts an embedded containerd for a test.
func containerd(t *testing.T) *client.Client {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts images")
	}
	dir, err := os.MkdirTemp("/run", "mp-img-") // t.TempDir is too long for sockets
	check(t, err)
	c, stop, err := embed.Start(t.Context(), embed.Config{
		Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	t.Cleanup(func() {
		check(t, stop(context.Background()))
		check(t, os.RemoveAll(dir))
	})
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func store(t *testing.T, c *client.Client, edit func(*Config)) *Store {
	t.Helper()
	cfg := Config{Snapshotter: embed.Overlayfs, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if edit != nil {
		edit(&cfg)
	}
	return New(c, cfg)
}

func reason(err error) string {
	if se, ok := errors.AsType[*runner.StepError](err); ok {
		return se.Reason
	}
	return fmt.Sprintf("no StepError: %v", err)
}

func TestPullPolicies(t *testing.T) {
	c := containerd(t)
	s := store(t, c, nil)
	srv := httptest.NewServer(fake.New(fake.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/a/b:1"
	ctx := t.Context()

	if _, err := s.Ensure(ctx, "Not/A/Name", corev1.PullIfNotPresent); reason(err) != runner.ReasonInvalidImageName {
		t.Errorf("bad name: %v", err)
	}
	_, err := s.Ensure(ctx, ref, corev1.PullNever)
	if want := fmt.Sprintf("Container image %q is not present with pull policy of Never", ref); reason(err) != runner.ReasonErrImageNeverPull || err.Error() != want {
		t.Errorf("Never: %v", err)
	}
	if _, err := s.Get(ctx, ref); !errdefs.IsNotFound(err) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent); reason(err) != runner.ReasonErrImagePull {
		t.Errorf("absent in the registry: %v", err)
	}

	testimages.Push(t, ref, testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=1"} }))
	first, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent)
	check(t, err)
	if first.Name != ref || !strings.HasPrefix(first.ID, "sha256:") || !slices.Equal(first.Config.Env, []string{"V=1"}) ||
		!strings.HasPrefix(first.Digest, strings.TrimSuffix(ref, ":1")+"@sha256:") {
		t.Errorf("%+v", first)
	}
	if _, err := c.SnapshotService(embed.Overlayfs).Stat(ns(t), first.ChainID); err != nil {
		t.Error(err)
	}

	testimages.Push(t, ref, testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=2"} }))
	same, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent)
	check(t, err)
	if same.ID != first.ID {
		t.Error("IfNotPresent replaced an image that is present")
	}
	second, err := s.Ensure(ctx, ref, corev1.PullAlways)
	check(t, err)
	if second.ID == first.ID || !slices.Equal(second.Config.Env, []string{"V=2"}) {
		t.Errorf("Always did not bring the new image: %+v", second)
	}
	byDigest, err := s.Ensure(ctx, second.Digest, corev1.PullIfNotPresent)
	check(t, err)
	if byDigest.ID != second.ID {
		t.Errorf("by digest: %+v", byDigest)
	}

	srv.Close()
	if _, err := s.Ensure(ctx, ref, corev1.PullAlways); reason(err) != runner.ReasonErrImagePull {
		t.Errorf("Always without the registry: %v", err)
	}
	if _, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent); err != nil {
		t.Errorf("IfNotPresent without the registry: %v", err)
	}

	// Others change things behind our back.
	check(t, c.ImageService().Delete(ns(t), ref))
	if _, err := s.Get(ctx, ref); !errdefs.IsNotFound(err) {
		t.Errorf("removed outside: %v", err)
	}
}

func ns(t *testing.T) context.Context {
	t.Helper()
	return namespaces.WithNamespace(t.Context(), embed.Namespace)
}

func TestPresenceCheckIsCheap(t *testing.T) {
	c := containerd(t)
	s := store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil))
	_, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	const n = 200
	began := time.Now()
	for range n {
		_, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
		check(t, err)
	}
	each := time.Since(began) / n
	t.Logf("%s for each check", each)
	if each > 10*time.Millisecond {
		t.Errorf("%s for each check", each)
	}
}

func TestCredentialsComeFromTheDockerConfig(t *testing.T) {
	c := containerd(t)
	addr := testimages.AuthRegistry(t, "me", "secret")
	ref := addr + "/private:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil), remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"}))
	file := filepath.Join(t.TempDir(), "config.json")
	s := store(t, c, func(cfg *Config) { cfg.AuthFile = file })

	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); reason(err) != runner.ReasonErrImagePull {
		t.Errorf("without a file: %v", err)
	}
	write := func(auth string) {
		b64 := base64.StdEncoding.EncodeToString([]byte(auth))
		check(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, addr, b64), 0o600))
	}
	write("me:wrong")
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); reason(err) != runner.ReasonErrImagePull {
		t.Errorf("wrong password: %v", err)
	}
	write("me:secret") // without a restart
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); err != nil {
		t.Errorf("right password: %v", err)
	}
	check(t, os.WriteFile(file, []byte("{broken"), 0o600))
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("broken file: %v", err)
	}
}

func TestConcurrentCallsShareOnePull(t *testing.T) {
	c := containerd(t)
	s := store(t, c, nil)
	upstream := testimages.Registry(t)
	testimages.Push(t, upstream+"/a:1", testimages.Busybox(t, nil))
	var manifests atomic.Int32
	release := make(chan struct{})
	proxy := newProxy(t, upstream, func(path string) {
		if strings.Contains(path, "/manifests/1") {
			manifests.Add(1)
			<-release
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i == 0 {
				// The one that may have started it goes away.
				cancel()
				_, _ = s.Ensure(ctx, proxy+"/a:1", corev1.PullIfNotPresent)
				return
			}
			if _, err := s.Ensure(ctx, proxy+"/a:1", corev1.PullIfNotPresent); err != nil {
				t.Error(err)
			}
		})
	}
	deadline := time.Now().Add(testbed.Patience())
	for time.Now().Before(deadline) {
		if _, calls := s.Puller.Shared(); calls >= 7 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if n := manifests.Load(); n > 2 { // one resolve; two when the cancelled call began alone
		t.Errorf("the manifest was asked for %d times", n)
	}
	if runs, _ := s.Puller.Shared(); runs != 0 {
		t.Errorf("%d runs are left", runs)
	}
}

func TestUsersOfAnImage(t *testing.T) {
	c := containerd(t)
	s := store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, func(c *v1.Config) { c.User = "app" }))
	img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	u, err := s.Local.ResolveUser(t.Context(), img, nil, nil)
	check(t, err)
	if u.UID != 1000 || u.GID != 1000 || !slices.Equal(u.Groups, []uint32{29, 2000}) {
		t.Errorf("%+v", u)
	}

	ref = testimages.Registry(t) + "/scratch:1"
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: "x", Content: []byte("x"), Mode: 0o644}}, nil))
	img, err = s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	u, err = s.Local.ResolveUser(t.Context(), img, nil, nil)
	check(t, err)
	if u.UID != 0 || u.GID != 0 || len(u.Groups) != 0 {
		t.Errorf("image without /etc/passwd: %+v", u)
	}
	if left, err := snapshots(t, c); err != nil || slices.ContainsFunc(left, func(k string) bool { return strings.HasPrefix(k, "monopod-look") }) {
		t.Errorf("snapshots left: %v, %v", left, err)
	}

	// A link that leaves the image must not read the host's file.
	ref = testimages.Registry(t) + "/evil:1"
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{
		{Path: "etc", Mode: 0o755},
		{Path: "etc/passwd", Link: "../../../../../../etc/hostname", Mode: 0o777},
		{Path: "etc/group", Content: []byte("g:x:7:\n"), Mode: 0o644},
	}, func(c *v1.Config) { c.User = "5:g" }))
	img, err = s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	if u, err := s.Local.ResolveUser(t.Context(), img, nil, nil); err != nil || u.UID != 5 || u.GID != 7 {
		t.Errorf("%+v, %v", u, err)
	}
}

func newProxy(t *testing.T, upstream string, before func(path string)) string {
	t.Helper()
	rp := httputilProxy(&url.URL{Scheme: "http", Host: upstream})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r.URL.Path)
		rp.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}
