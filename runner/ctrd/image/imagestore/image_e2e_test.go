//go:build e2e

package imagestore_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	fake "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/image/imagestore"
)

func TestPullPolicies(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	srv := httptest.NewServer(fake.New(fake.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/a/b:1"
	ctx := t.Context()

	if _, err := s.Ensure(ctx, "Not/A/Name", corev1.PullIfNotPresent); imagetest.Reason(err) != runner.ReasonInvalidImageName {
		t.Errorf("bad name: %v", err)
	}
	_, err := s.Ensure(ctx, ref, corev1.PullNever)
	if want := fmt.Sprintf("Container image %q is not present with pull policy of Never", ref); imagetest.Reason(err) != runner.ReasonErrImageNeverPull || err.Error() != want {
		t.Errorf("Never: %v", err)
	}
	if _, err := s.Get(ctx, ref); !errdefs.IsNotFound(err) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent); imagetest.Reason(err) != runner.ReasonErrImagePull {
		t.Errorf("absent in the registry: %v", err)
	}

	testimages.Push(t, ref, testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=1"} }))
	first, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	if first.Name != ref || !strings.HasPrefix(first.ID, "sha256:") || !slices.Equal(first.Config.Env, []string{"V=1"}) ||
		!strings.HasPrefix(first.Digest, strings.TrimSuffix(ref, ":1")+"@sha256:") {
		t.Errorf("%+v", first)
	}
	if _, err := c.SnapshotService(embed.Overlayfs).Stat(imagetest.NS(t), first.ChainID); err != nil {
		t.Error(err)
	}

	testimages.Push(t, ref, testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=2"} }))
	same, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	if same.ID != first.ID {
		t.Error("IfNotPresent replaced an image that is present")
	}
	second, err := s.Ensure(ctx, ref, corev1.PullAlways)
	imagetest.Check(t, err)
	if second.ID == first.ID || !slices.Equal(second.Config.Env, []string{"V=2"}) {
		t.Errorf("Always did not bring the new image: %+v", second)
	}
	byDigest, err := s.Ensure(ctx, second.Digest, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	if byDigest.ID != second.ID {
		t.Errorf("by digest: %+v", byDigest)
	}

	srv.Close()
	if _, err := s.Ensure(ctx, ref, corev1.PullAlways); imagetest.Reason(err) != runner.ReasonErrImagePull {
		t.Errorf("Always without the registry: %v", err)
	}
	if _, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent); err != nil {
		t.Errorf("IfNotPresent without the registry: %v", err)
	}

	// Others change things behind our back.
	imagetest.Check(t, c.ImageService().Delete(imagetest.NS(t), ref))
	if _, err := s.Get(ctx, ref); !errdefs.IsNotFound(err) {
		t.Errorf("removed outside: %v", err)
	}
}

func TestPresenceCheckIsCheap(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil))
	_, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	const n = 200
	began := time.Now()
	for range n {
		_, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
		imagetest.Check(t, err)
	}
	each := time.Since(began) / n
	t.Logf("%s for each check", each)
	if each > 10*time.Millisecond {
		t.Errorf("%s for each check", each)
	}
}

func TestCredentialsComeFromTheDockerConfig(t *testing.T) {
	c := imagetest.Containerd(t)
	addr := testimages.AuthRegistry(t, "me", "secret")
	ref := addr + "/private:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil), remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"}))
	file := filepath.Join(t.TempDir(), "config.json")
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.AuthFile = file })

	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); imagetest.Reason(err) != runner.ReasonErrImagePull {
		t.Errorf("without a file: %v", err)
	}
	write := func(auth string) {
		b64 := base64.StdEncoding.EncodeToString([]byte(auth))
		imagetest.Check(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, addr, b64), 0o600))
	}
	write("me:wrong")
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); imagetest.Reason(err) != runner.ReasonErrImagePull {
		t.Errorf("wrong password: %v", err)
	}
	write("me:secret") // without a restart
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); err != nil {
		t.Errorf("right password: %v", err)
	}
	imagetest.Check(t, os.WriteFile(file, []byte("{broken"), 0o600))
	if _, err := s.Ensure(t.Context(), ref, corev1.PullAlways); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("broken file: %v", err)
	}
}
