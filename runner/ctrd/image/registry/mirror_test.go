package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image/registrytest"
)

// behind returns access to a registry behind mirrors.
func behind(t *testing.T, origin *registrytest.Library, mirrors ...*registrytest.Library) Access {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, origin.Host)
	must(t, os.Mkdir(dir, 0o755))
	text := fmt.Sprintf("server = %q\n", origin.URL)
	for _, m := range mirrors {
		text += fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", m.URL)
	}
	must(t, os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600))
	return Access{HostsDirs: []string{root}}
}

// only lets a function answer requests for manifests or blobs.
func only(kind string, answer http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/"+kind+"/") {
			return false
		}
		answer(rw, r)
		return true
	}
}

// spoilt are answers with status 200 that are not what was asked for, by what is wrong.
func spoilt() map[string]func(http.ResponseWriter, *http.Request) bool {
	const size = 4
	length := func(rw http.ResponseWriter) { rw.Header().Set("Content-Length", fmt.Sprint(size)) }
	return map[string]func(http.ResponseWriter, *http.Request) bool{
		"a login page": func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.Header().Set("Content-Type", "text/html")
			_, _ = rw.Write([]byte("<html>login</html>"))
			return true
		},
		"plain text": func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.Header().Set("Content-Type", "text/plain")
			_, _ = rw.Write([]byte("hello"))
			return true
		},
		"an empty blob": only("blobs", func(rw http.ResponseWriter, _ *http.Request) { length(rw) }),
		"half a blob": only("blobs", func(rw http.ResponseWriter, _ *http.Request) {
			length(rw)
			_, _ = rw.Write([]byte("a:"))
		}),
		"other bytes": only("blobs", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(make([]byte, size)) }),
		"no JSON": only("manifests", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			_, _ = rw.Write([]byte("{"))
		}),
	}
}

func TestAMirrorWithWrongContentIsLeftForTheRegistry(t *testing.T) {
	for name, answer := range spoilt() {
		t.Run(name, func(t *testing.T) {
			origin, mirror := registrytest.New(t), registrytest.New(t)
			layer := registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1")}
			ref := origin.Host + "/fleet/pods:1"
			want := origin.Push(t, ref, layer)
			mirror.Push(t, mirror.Host+"/fleet/pods:1", layer)
			mirror.Before.Store(&answer)

			got, err := fetch(t, NewArtifacts(behind(t, origin, mirror)), ref, "", 100)
			if err != nil || got.Digest != want || string(got.Layers[0].Data) != "a: 1" {
				t.Fatalf("%+v, %v", got, err)
			}

			c, blamed, calls := NewClient(behind(t, origin, mirror), Limits{}), "", 0
			c.Misled = func(image string, err *MirrorError) { blamed = image + " " + err.Hosts }
			use := func(ctx context.Context, resolver remotes.Resolver) error {
				if calls++; AfterMirror(ctx) != (calls == 2) {
					t.Errorf("call %d: after a mirror: %v", calls, AfterMirror(ctx))
				}
				got, err = fetchFrom(ctx, resolver, ref, "", 100)
				return err
			}
			if err := c.Try(t.Context(), ref, nil, use); err != nil || got.Digest != want || blamed != ref+" "+mirror.Host || calls != 2 {
				t.Errorf("%+v, %v, %d calls, blamed %q", got, err, calls, blamed)
			}
		})
	}
}

func TestOnlyTheMirrorThatIsWrongIsLeft(t *testing.T) {
	origin, wrong, good := registrytest.New(t), registrytest.New(t), registrytest.New(t)
	layer := registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1")}
	ref := origin.Host + "/fleet/pods:1"
	origin.Push(t, ref, layer)
	good.Push(t, good.Host+"/fleet/pods:1", layer)
	page := spoilt()["a login page"]
	wrong.Before.Store(&page)
	if _, err := fetch(t, NewArtifacts(behind(t, origin, wrong, good)), ref, "", 100); err != nil || good.Blobs.Load() == 0 || origin.Blobs.Load() != 0 {
		t.Errorf("%v: %d blobs of the good mirror, %d of the registry", err, good.Blobs.Load(), origin.Blobs.Load())
	}
}

func TestAMirrorIsNamedOnlyForItsOwnErrors(t *testing.T) {
	page := spoilt()["a login page"]
	gone := func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	for name, tt := range map[string]struct {
		mirror, origin func(http.ResponseWriter, *http.Request) bool
		blamed         bool
		want           string
	}{
		"the registry fails, too":           {page, gone, true, "503"},
		"the registry has the same content": {page, page, false, "text/html"},
		"the mirror fails":                  {gone, page, false, "text/html"},
		"both fail":                         {gone, gone, false, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			origin, mirror := registrytest.New(t), registrytest.New(t)
			origin.Before.Store(&tt.origin)
			mirror.Before.Store(&tt.mirror)
			c := NewClient(behind(t, origin, mirror), Limits{})
			c.Misled = func(string, *MirrorError) { t.Error("it succeeded") }
			err := c.Try(t.Context(), origin.Host+"/fleet/pods:1", nil, func(ctx context.Context, resolver remotes.Resolver) error {
				_, err := fetchFrom(ctx, resolver, origin.Host+"/fleet/pods:1", "", 100)
				return err
			})
			m, blamed := errors.AsType[*MirrorError](err)
			if blamed != tt.blamed || err == nil || !strings.Contains(err.Error(), tt.want) || blamed && (m.Hosts != mirror.Host || !strings.Contains(err.Error(), mirror.Host)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAnErrorThatIsFinalLeavesNoMirror(t *testing.T) {
	m, calls := &mirrors{}, 0
	refused := Unfit("no signature")
	_, err := m.try(t.Context(), func(err error) bool { return errors.Is(err, refused) }, func(context.Context) error {
		calls++
		m.note("http://mirror.example/v2")
		return refused
	})
	if calls != 1 || !errors.Is(err, refused) {
		t.Errorf("%d calls, %v", calls, err)
	}
}
