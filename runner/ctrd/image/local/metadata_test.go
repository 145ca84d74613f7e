package local

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	contentstore "github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
)

// put writes content and returns its descriptor.
func put(t *testing.T, store content.Store, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := content.WriteBlob(t.Context(), store, d.Digest.String(), bytes.NewReader(data), d); err != nil {
		t.Fatal(err)
	}
	return d
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A manifest or config of gigabytes would be read into memory: it is refused by its size, whatever type it claims to be, and
// whatever size is claimed.
func TestLargeManifestsAndConfigsAreNotRead(t *testing.T) {
	store, err := contentstore.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	large := []byte(`{"config":{"Cmd":["` + strings.Repeat("x", bounded.MaxMetadata) + `"]}}`)
	small := []byte(`{"config":{"Cmd":["x"]}}`)
	manifest := func(config ocispec.Descriptor, pad string) ocispec.Descriptor {
		m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config, Annotations: map[string]string{"pad": pad}}
		m.SchemaVersion = 2
		return put(t, store, ocispec.MediaTypeImageManifest, asJSON(t, m))
	}
	index := func(of ocispec.Descriptor) ocispec.Descriptor {
		i := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{of}}
		i.SchemaVersion = 2
		return put(t, store, ocispec.MediaTypeImageIndex, asJSON(t, i))
	}
	lies := put(t, store, ocispec.MediaTypeImageConfig, large)
	lies.Size = 10
	good := put(t, store, ocispec.MediaTypeImageConfig, small)
	for name, tt := range map[string]struct {
		target  ocispec.Descriptor
		refused bool
	}{
		"a good image":               {manifest(good, ""), false},
		"a good image in an index":   {index(manifest(good, "")), false},
		"a large config":             {manifest(put(t, store, ocispec.MediaTypeImageConfig, large), ""), true},
		"one that is called a layer": {manifest(put(t, store, ocispec.MediaTypeImageLayer, large), ""), true},
		"one that is called small":   {manifest(lies, ""), true},
		"a large manifest":           {manifest(good, string(large)), true},
		"a large one in an index":    {index(manifest(good, string(large))), true},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkImage(t.Context(), store, tt.target)
			if refused := err != nil && strings.Contains(err.Error(), "is 8388608"); refused != tt.refused || err != nil && !refused {
				t.Errorf("checkImage: %v", err)
			}
			if name == "one that is called small" {
				return // a pull finds that out by itself: it takes what the size says
			}
			walk := func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) { return nil, nil }
			err = images.Walk(t.Context(), BoundedMetadata(images.Handlers(images.HandlerFunc(walk), images.ChildrenHandler(store))), tt.target)
			if (err != nil) != tt.refused {
				t.Errorf("a pull: %v", err)
			}
		})
	}
	if _, err := ReadMetadata(t.Context(), store, lies); err == nil {
		t.Error("a large config was read")
	}
	if b, err := ReadMetadata(t.Context(), store, good); err != nil || !bytes.Equal(b, small) {
		t.Errorf("%q, %v", b, err)
	}
}
