package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// shelf is a registry with one artifact.
type shelf struct {
	mu  sync.Mutex
	a   *Artifact
	err error

	// known is the digest that was asked with last.
	known  string
	closed atomic.Bool
}

func (s *shelf) Artifact(ctx context.Context, _, known string, _ int64) (*Artifact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	switch {
	case errors.Is(s.err, context.DeadlineExceeded):
		<-ctx.Done()
		return nil, fmt.Errorf("get https://r.example/v2/: %w", ctx.Err())
	case s.err != nil:
		return nil, s.err
	case s.a.Digest == known:
		return nil, ErrNotModified
	}
	return s.a, nil
}

func (s *shelf) Close() { s.closed.Store(true) }

// puts replaces the artifact.
func (s *shelf) puts(digest string, layers ...Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.a, s.err = &Artifact{Digest: digest, Layers: layers}, nil
}

func (s *shelf) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func yamlLayer(data string) Layer { return Layer{MediaType: "application/yaml", Data: []byte(data)} }

type entry struct {
	name, data string
	kind       byte
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.data))}
		if e.kind == tar.TypeSymlink {
			h.Linkname = "/etc/passwd"
		}
		watchertest.Must(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.data))
		watchertest.Must(t, err)
	}
	watchertest.Must(t, w.Close())
	return b.Bytes()
}

func askRegistry(t *testing.T, from *shelf, dir string, change ...func(*OCIConfig)) *watchertest.Runner {
	t.Helper()
	cfg := OCIConfig{Name: "fleet", Reference: "r.example/pods:1", Registry: from, Period: 2 * time.Millisecond, Load: partsLoader("fleet"), Copy: NewCopy(filepath.Join(dir, "fleet"))}
	for _, f := range change {
		f(&cfg)
	}
	return watchertest.StartSource(t, NewOCISource(cfg))
}

func TestLayersAndFilesOfTarsAreOneSetOfManifests(t *testing.T) {
	packed := tarOf(t, entry{name: "z.yaml", data: podYAML("z", "v1")}, entry{name: "./d/", kind: tar.TypeDir}, entry{name: "./d/c.yml", data: podYAML("c", "v1")},
		entry{name: "a.json", data: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"},"spec":{"containers":[{"name":"c","image":"v1"}]}}`},
		entry{name: "README.md", data: "# no manifest"}, entry{name: "d/.hidden.yaml", data: "no: manifest"}, entry{name: "link.yaml", kind: tar.TypeSymlink})
	const layerType = "application/vnd.oci.image.layer.v1.tar"
	for name, tt := range map[string]struct {
		layers []Layer
		want   string
	}{
		"one file":                            {[]Layer{yamlLayer(podYAML("x", "v1"))}, "x=v1"},
		"two files, in their order":           {[]Layer{yamlLayer(podYAML("x", "v1")), yamlLayer(podYAML("b", "v1"))}, "x=v1 b=v1"},
		"by the name: oras calls it a tar":    {[]Layer{{layerType, "pods.yaml", []byte(podYAML("x", "v1"))}}, "x=v1"},
		"a tar, in the order of names":        {[]Layer{{layerType, "", packed}}, "j=v1 c=v1 z=v1"},
		"a tar with gzip":                     {[]Layer{{layerType + "+gzip", "directory", zip(string(packed))}}, "j=v1 c=v1 z=v1"},
		"docker's tar with gzip":              {[]Layer{{"application/vnd.docker.image.rootfs.diff.tar.gzip", "", zip(string(packed))}}, "j=v1 c=v1 z=v1"},
		"flux's tar with gzip, and a file":    {[]Layer{{"application/vnd.cncf.flux.content.v1.tar+gzip", "", zip(string(packed))}, yamlLayer(podYAML("x", "v1"))}, "j=v1 c=v1 z=v1 x=v1"},
		"a signature that nobody has to have": {[]Layer{yamlLayer(podYAML("x", "v1")), {"", "pods.yaml.minisig", []byte("s")}}, "x=v1"},
	} {
		t.Run(name, func(t *testing.T) {
			from := &shelf{}
			from.puts("sha256:1", tt.layers...)
			askRegistry(t, from, t.TempDir()).Wants(tt.want, model.InputAccepted)
		})
	}
}

func TestNothingOfARegistryTouchesAnythingButAGoodArtifact(t *testing.T) {
	from := &shelf{}
	from.puts("sha256:1", yamlLayer(podYAML("x", "v1")))
	s := askRegistry(t, from, t.TempDir(), func(c *OCIConfig) { c.MaxSize, c.Timeout = 4096, 20*time.Millisecond })
	s.Wants("x=v1", model.InputAccepted)
	good := podYAML("x", "v2")
	bomb := zip(string(tarOf(t, entry{name: "README", data: strings.Repeat("x", 8<<20)})))
	many := tarOf(t, entry{name: "a.yaml", data: strings.Repeat("#", 3000)}, entry{name: "b.yaml", data: strings.Repeat("#", 3000)})
	const tarType = "application/vnd.oci.image.layer.v1.tar+gzip"
	for _, tt := range []struct {
		name   string
		layers []Layer
		err    error
		state  model.InputState
		says   string
	}{
		{"no registry", nil, errors.New("dial tcp: connection refused"), model.InputUnreachable, "oci://r.example/pods:1: dial tcp: connection refused"},
		{"no answer in time", nil, context.DeadlineExceeded, model.InputUnreachable, "timeout: no complete answer within 20ms"},
		{"something else", nil, &Refusal{errors.New("it is an index")}, model.InputRefused, "it is an index"},
		{"no layers", nil, nil, model.InputRefused, "no manifests"},
		{"an image", []Layer{{tarType, "", zip(string(tarOf(t, entry{name: "bin/sh", data: "#!"})))}}, nil, model.InputRefused, "no manifests"},
		{"a layer of another kind", []Layer{yamlLayer(good), {"application/wasm", "", []byte("x")}}, nil, model.InputRefused, "layer 2 \"\" of type application/wasm"},
		{"no tar", []Layer{{tarType, "", []byte("hello")}}, nil, model.InputRefused, "layer 1: not a complete tar"},
		{"half a tar", []Layer{{tarType, "", many[:1000]}}, nil, model.InputRefused, "layer 1: "},
		{"half a gzip", []Layer{{tarType, "", zip(good)[:30]}}, nil, model.InputRefused, "layer 1: "},
		{"a bomb", []Layer{{tarType, "", bomb}}, nil, model.InputRefused, "larger than maxSize"},
		{"files that are too large together", []Layer{{tarType, "", many}}, nil, model.InputRefused, "larger than maxSize"},
		{"layers that are too large together", []Layer{yamlLayer(strings.Repeat("#", 3000)), yamlLayer(strings.Repeat("#", 3000))}, nil, model.InputRefused, "larger than maxSize"},
		{"an empty file", []Layer{yamlLayer("")}, nil, model.InputRefused, "empty"},
		{"a bad manifest", []Layer{yamlLayer(strings.Replace(good, "image", "imige", 1))}, nil, model.InputRefused, "imige"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from.puts("sha256:"+tt.name, tt.layers...)
			if tt.err != nil {
				from.fails(tt.err)
			}
			s.Says(tt.says)
			s.Wants("x=v1", tt.state)
		})
	}
	from.puts("sha256:2", yamlLayer(good))
	s.Wants("x=v2", model.InputAccepted)
	s.NeverWithout("x")
	s.Stop()
	if !from.closed.Load() {
		t.Error("idle connections stay")
	}
}

func TestTheDigestIsAskedForAlsoAfterARestart(t *testing.T) {
	dir := t.TempDir()
	from := &shelf{}
	from.puts("sha256:1", yamlLayer(podYAML("x", "v1")))
	s := askRegistry(t, from, dir)
	s.Wants("x=v1", model.InputAccepted)
	s.Stop()
	again := askRegistry(t, from, dir)
	set := again.Until("an answer", func(set watcher.Set) bool { return len(set.Inputs) == 1 && set.Inputs[0].FromDisk.IsZero() })
	again.Stop()
	if from.known != "sha256:1" || watchertest.Images(set) != "x=v1" || set.Inputs[0].State != model.InputAccepted {
		t.Errorf("asked with %q: %+v", from.known, set)
	}
}

func TestASignatureInAnArtifactIsForItsOnlyFile(t *testing.T) {
	from := &shelf{}
	verify := func(c *OCIConfig) {
		c.Detached = true
		c.Verify = func(_ context.Context, body, signature []byte) ([]byte, uint64, error) {
			if string(signature) != fmt.Sprint(len(body)) {
				return nil, 0, errors.New("nobody vouches for it")
			}
			return body, 1, nil
		}
	}
	signature := func(data string) Layer { return Layer{"application/octet-stream", "pods.yaml.minisig", []byte(data)} }
	first, second := podYAML("x", "v1"), podYAML("x", "second")
	from.puts("sha256:1", yamlLayer(first), signature(fmt.Sprint(len(first))))
	s := askRegistry(t, from, t.TempDir(), verify)
	s.Wants("x=v1", model.InputAccepted)
	good := signature(fmt.Sprint(len(second)))
	for _, tt := range []struct {
		name   string
		layers []Layer
		says   string
	}{
		{"none", []Layer{yamlLayer(second)}, "it has 0 signatures"},
		{"another", []Layer{yamlLayer(second), signature("0")}, "nobody vouches for it"},
		{"two", []Layer{yamlLayer(second), good, good}, "it has 2 signatures"},
		{"of two files", []Layer{yamlLayer(second), yamlLayer(first), good}, "manifests in 2 files"},
		{"of a tar", []Layer{{"application/x.tar", "", tarOf(t, entry{name: "a.yaml", data: second})}, good}, "not in a tar"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from.puts("sha256:"+tt.name, tt.layers...)
			s.Says(tt.says)
			s.Wants("x=v1", model.InputRefused)
		})
	}
	from.puts("sha256:2", yamlLayer(second), good)
	s.Wants("x=second", model.InputAccepted)
}
