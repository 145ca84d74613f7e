// Package registrytest has a registry and credential plug-ins for tests. It owns nothing that outlives a test, and must not be imported by
// product code.
package registrytest

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Layer is a layer of an artifact.
type Layer struct {
	MediaType string
	// Title is the file name in its annotations, if any.
	Title string
	Data  []byte
}

// Library is a registry on loopback that can be spoilt.
type Library struct {
	*httptest.Server
	Host string
	// Before, when it returns true, has answered itself.
	Before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	Blobs  atomic.Int64
}

// New starts one, which ends with the test.
func New(t testing.TB) *Library {
	t.Helper()
	l := &Library{}
	reg := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	l.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			l.Blobs.Add(1)
		}
		if f := l.Before.Load(); f != nil && (*f)(rw, r) {
			return
		}
		reg.ServeHTTP(rw, r)
	}))
	t.Cleanup(l.Close)
	l.Host = strings.TrimPrefix(l.URL, "http://")
	return l
}

// Push puts an artifact of these layers, titles and all, into the library and returns its digest.
func (l *Library) Push(t testing.TB, ref string, layers ...Layer) string {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, b := range layers {
		add := mutate.Addendum{Layer: static.NewLayer(b.Data, types.MediaType(b.MediaType)), MediaType: types.MediaType(b.MediaType)}
		if b.Title != "" {
			add.Annotations = map[string]string{ocispec.AnnotationTitle: b.Title}
		}
		var err error
		img, err = mutate.Append(img, add)
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// Plugins makes a directory with plug-ins, which note each request, and their configuration.
func Plugins(t testing.TB, config string, programs map[string]string) (file, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, body := range programs {
		script := "#!/bin/sh\ncat >> " + dir + "/asked\necho \" $0 $* $EXTRA\" | sed 's|.*/||' >> " + dir + "/asked\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, dir
}

// Answering is the body of a plug-in that answers with a login for each pattern.
func Answering(cacheKey, duration string, patterns ...string) string {
	var auths []string
	for _, p := range patterns {
		auths = append(auths, fmt.Sprintf(`%q: {"username": "user-of-%s", "password": "pw"}`, p, p))
	}
	if duration != "" {
		duration = fmt.Sprintf(`"cacheDuration": %q, `, duration)
	}
	return fmt.Sprintf("cat <<'END'\n"+`{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": %q, %s"auth": {%s}}`+"\nEND",
		cacheKey, duration, strings.Join(auths, ", "))
}

// ProvidersHead is the beginning of a configuration of plug-ins.
const ProvidersHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// Entry is one of its entries.
func Entry(name, match, more string) string {
	return fmt.Sprintf("- {name: %s, matchImages: [%q], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1%s}\n", name, match, more)
}

// Asked returns the requests that the plug-ins have noted.
func Asked(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}
