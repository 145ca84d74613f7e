package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monopod/runner/ctrd/image/registrytest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fetch(t *testing.T, a *Artifacts, ref, known string, limit int64) (*Artifact, error) {
	t.Helper()
	t.Cleanup(a.Close)
	return a.Fetch(t.Context(), ref, known, limit)
}

func TestAnArtifactIsFetchedOnceByItsDigest(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	digest := l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Title: "pods.yaml", Data: []byte("a: 1\n")}, registrytest.Layer{MediaType: "application/octet-stream", Data: []byte("b")})
	a := NewArtifacts(Access{})
	got, err := fetch(t, a, ref, "", 100)
	must(t, err)
	if got.Digest != digest || len(got.Layers) != 2 || got.Layers[0].Title != "pods.yaml" || got.Layers[0].MediaType != "application/yaml" ||
		string(got.Layers[0].Data) != "a: 1\n" || got.Layers[1].Title != "" || string(got.Layers[1].Data) != "b" {
		t.Fatalf("%+v", got)
	}
	before := l.Blobs.Load()
	if _, err := fetch(t, a, ref, digest, 100); !errors.Is(err, ErrSame) {
		t.Errorf("known: %v", err)
	}
	if n := l.Blobs.Load() - before; n > 0 {
		t.Errorf("%d blobs were asked for although the artifact is known", n)
	}
	byDigest, err := fetch(t, a, l.Host+"/fleet/pods@"+digest, "", 100)
	must(t, err)
	if byDigest.Digest != digest {
		t.Errorf("%+v", byDigest)
	}
	moved := l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 2\n")})
	if got, err = fetch(t, a, ref, digest, 100); err != nil || got.Digest != moved || string(got.Layers[0].Data) != "a: 2\n" {
		t.Errorf("after the tag moved: %+v, %v", got, err)
	}
}

func TestWhatIsNoGoodArtifactIsNotReturned(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	content := []byte("a: 1\n")
	l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: content})
	index, err := name.ParseReference(l.Host+"/fleet/index:1", name.Insecure)
	must(t, err)
	must(t, remote.WriteIndex(index, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: empty.Image})))

	blobs := func(f func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(rw http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			f(rw)
			return true
		}
	}
	for name, tt := range map[string]struct {
		ref    string
		limit  int64
		before func(http.ResponseWriter, *http.Request) bool
		unfit  bool
		says   string
	}{
		"no such tag":        {l.Host + "/fleet/pods:2", 100, nil, false, "not found"},
		"no registry":        {"127.0.0.1:1/fleet/pods:1", 100, nil, false, "connection refused"},
		"a name without one": {"fleet/pods:1", 100, nil, false, "does not begin with the host of a registry"},
		"no name":            {l.Host + "/Fleet:1", 100, nil, false, "invalid reference format"},
		"an index":           {l.Host + "/fleet/index:1", 100, nil, true, "it is of type application/"},
		"too large":          {ref, 4, nil, true, "layer 1: 5 bytes, more than maxSize (4)"},
		"other bytes":        {ref, 100, blobs(func(rw http.ResponseWriter) { _, _ = rw.Write([]byte("a: 2\n")) }), true, "does not match its digest"},
		"fewer bytes":        {ref, 100, blobs(func(rw http.ResponseWriter) { _, _ = rw.Write([]byte("a: ")) }), false, "layer 1: "},
		"more bytes":         {ref, 100, blobs(func(rw http.ResponseWriter) { _, _ = rw.Write([]byte("a: 1\na: 2\n")) }), false, "layer 1: "},
		"an error":           {ref, 100, blobs(func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusForbidden) }), false, "layer 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			l.Before.Store(nil)
			if tt.before != nil {
				l.Before.Store(&tt.before)
			}
			got, err := fetch(t, NewArtifacts(Access{}), tt.ref, "", tt.limit)
			if err == nil {
				t.Fatalf("fetched: %+v", got)
			}
			_, unfit := errors.AsType[*UnfitError](err)
			if unfit != tt.unfit || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("unfit %v: %v", unfit, err)
			}
		})
	}
}

func TestAddressesInAnArtifactAreNotFollowed(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
	img, err := remote.Image(mustRef(t, ref))
	must(t, err)
	manifest, err := img.Manifest()
	must(t, err)
	manifest.Layers[0].URLs = []string{elsewhere.URL}
	data, err := json.Marshal(manifest)
	must(t, err)
	must(t, remote.Put(mustRef(t, ref), rawManifest{data, manifest.MediaType}))
	got, err := fetch(t, NewArtifacts(Access{}), ref, "", 100)
	must(t, err)
	if string(got.Layers[0].Data) != "a: 1\n" || asked.Load() > 0 {
		t.Errorf("%+v; asked elsewhere %d times", got, asked.Load())
	}
}

func mustRef(t *testing.T, ref string) name.Reference {
	t.Helper()
	r, err := name.ParseReference(ref, name.Insecure)
	must(t, err)
	return r
}

type rawManifest struct {
	data []byte
	kind types.MediaType
}

func (m rawManifest) RawManifest() ([]byte, error)        { return m.data, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return m.kind, nil }

func TestArtifactsAreFetchedWithTheCredentialsOfImages(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
	guard := func(rw http.ResponseWriter, r *http.Request) bool {
		if u, p, ok := r.BasicAuth(); ok && u == "me" && p == "hunter2" {
			return false
		}
		rw.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(rw, "who are you?", http.StatusUnauthorized)
		return true
	}
	l.Before.Store(&guard)
	path := filepath.Join(t.TempDir(), "config.json")
	a := NewArtifacts(Access{AuthFile: path})
	if _, err := fetch(t, a, ref, "", 100); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without credentials: %v", err)
	}
	must(t, os.WriteFile(path, fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"hunter2"}}}`, l.Host), 0o600))
	if _, err := fetch(t, a, ref, "", 100); err != nil {
		t.Errorf("with credentials: %v", err)
	}
}

// TestPluginErrorsAreReportedWhenAnArtifactCannotBePulled, and is no matter when it can.
func TestPluginErrorsAreReportedWhenAnArtifactCannotBePulled(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	digest := l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
	for name, c := range map[string]struct {
		config, want string
		programs     map[string]string
	}{
		"their configuration": {"providers: [", "credential providers ", nil},
		"one of them":         {registrytest.ProvidersHead + registrytest.Entry("p", l.Host, ""), "credential provider p: exit status 1: no cloud", map[string]string{"p": "echo no cloud >&2; exit 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := plugins(t, c.config, c.programs)
			a := NewArtifacts(Access{Providers: p})
			l.Before.Store(nil)
			if _, err := fetch(t, a, ref, "", 100); err != nil {
				t.Errorf("nobody asks for a login: %v", err)
			}
			if _, err := fetch(t, a, ref, digest, 100); err != ErrSame { //nolint:errorlint // nothing else is wrong
				t.Errorf("known: %v", err)
			}
			guard := func(rw http.ResponseWriter, _ *http.Request) bool {
				http.Error(rw, "who are you?", http.StatusForbidden)
				return true
			}
			l.Before.Store(&guard)
			if _, err := fetch(t, a, ref, "", 100); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "403") {
				t.Errorf("%v, want %q with what the registry says", err, c.want)
			}
		})
	}
}

func TestAFetchEndsWithItsContext(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	ctx, cancel := context.WithCancel(t.Context())
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	l.Before.Store(&hang)
	a := NewArtifacts(Access{})
	defer a.Close()
	if _, err := a.Fetch(ctx, ref, "", 100); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
