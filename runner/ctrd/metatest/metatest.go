// Package metatest is test support: a client of containerd on a metadata database, a content store and a snapshotter in a temporary directory,
// without a daemon, tasks and garbage collection. It must be imported by tests only.
package metatest

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/native"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/types/known/anypb"
)

// Snapshotter is the name of the only snapshotter.
const Snapshotter = "native"

// New returns a client, and a context with its namespace.
func New(t testing.TB) (*client.Client, context.Context) {
	t.Helper()
	const namespace = "test"
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := bolt.Open(filepath.Join(dir, "meta.db"), 0o600, &bolt.Options{NoSync: true, NoGrowSync: true})
	check(err)
	t.Cleanup(func() { _ = db.Close() })
	blobs, err := local.NewStore(filepath.Join(dir, "content"))
	check(err)
	layers, err := native.NewSnapshotter(filepath.Join(dir, "snapshots"))
	check(err)
	t.Cleanup(func() { _ = layers.Close() })
	meta := metadata.NewDB(db, blobs, map[string]snapshots.Snapshotter{Snapshotter: layers})
	ctx := namespaces.WithNamespace(t.Context(), namespace)
	check(meta.Init(ctx))
	known := &store{db}
	check(known.Create(ctx, namespace, nil))
	c, err := client.New("", client.WithDefaultNamespace(namespace), client.WithServices(
		client.WithContainerStore(metadata.NewContainerStore(meta)), client.WithSandboxStore(metadata.NewSandboxStore(meta)),
		client.WithImageStore(metadata.NewImageStore(meta)), client.WithLeasesService(metadata.NewLeaseManager(meta)),
		client.WithContentStore(meta.ContentStore()), client.WithSnapshotters(map[string]snapshots.Snapshotter{Snapshotter: meta.Snapshotter(Snapshotter)}),
		client.WithNamespaceService(known),
	))
	check(err)
	return c, ctx
}

// Container stores the record of a container.
func Container(ctx context.Context, t testing.TB, c *client.Client, id string, labels map[string]string) {
	t.Helper()
	rec := containers.Container{ID: id, Labels: labels, Runtime: containers.RuntimeInfo{Name: "none"}, Spec: &anypb.Any{TypeUrl: "spec", Value: []byte("{}")}}
	if _, err := c.ContainerService().Create(ctx, rec); err != nil {
		t.Fatal(err)
	}
}

// Blob writes content and returns its descriptor.
func Blob(ctx context.Context, t testing.TB, c *client.Client, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := content.WriteBlob(ctx, c.ContentStore(), d.Digest.String(), bytes.NewReader(data), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Image stores an image that runs a command, with one layer of its own, which is unpacked. It returns the descriptors of its manifest and its
// config.
func Image(ctx context.Context, t testing.TB, c *client.Client, cmd string, names ...string) (target, config ocispec.Descriptor) {
	t.Helper()
	blob := func(mediaType string, v any) ocispec.Descriptor {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return Blob(ctx, t, c, mediaType, data)
	}
	config = blob(ocispec.MediaTypeImageConfig, ocispec.Image{
		Config: ocispec.ImageConfig{Cmd: []string{cmd}}, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.Digest(Chain(cmd))}},
	})
	target = blob(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config,
	})
	for _, name := range names {
		if _, err := c.ImageService().Create(ctx, images.Image{Name: name, Target: target}); err != nil {
			t.Fatal(err)
		}
	}
	layers := c.SnapshotService(Snapshotter)
	if _, err := layers.Prepare(ctx, "unpacking "+cmd, ""); err != nil {
		t.Fatal(err)
	}
	if err := layers.Commit(ctx, Chain(cmd), "unpacking "+cmd); err != nil {
		t.Fatal(err)
	}
	return target, config
}

// Artifact stores a manifest with an empty config, and with layers of these types.
func Artifact(ctx context.Context, t testing.TB, c *client.Client, name string, layers ...string) {
	t.Helper()
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: Blob(ctx, t, c, ocispec.MediaTypeEmptyJSON, []byte("{}")), Layers: []ocispec.Descriptor{},
	}
	for _, of := range layers {
		m.Layers = append(m.Layers, Blob(ctx, t, c, of, []byte("content of "+of)))
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ImageService().Create(ctx, images.Image{Name: name, Target: Blob(ctx, t, c, ocispec.MediaTypeImageManifest, data)}); err != nil {
		t.Fatal(err)
	}
}

// Chain returns the snapshot of an image that runs a command.
func Chain(cmd string) string { return digest.FromString("layer of " + cmd).String() }

// store is the namespaces of a database.
type store struct{ db *bolt.DB }

// Create implements namespaces.Store.
func (s *store) Create(ctx context.Context, namespace string, labels map[string]string) error {
	return s.db.Update(func(tx *bolt.Tx) error { return metadata.NewNamespaceStore(tx).Create(ctx, namespace, labels) })
}

// Labels implements namespaces.Store.
func (s *store) Labels(ctx context.Context, namespace string) (labels map[string]string, err error) {
	err = s.db.View(func(tx *bolt.Tx) (err error) {
		labels, err = metadata.NewNamespaceStore(tx).Labels(ctx, namespace)
		return err
	})
	return labels, err
}

// SetLabel implements namespaces.Store.
func (s *store) SetLabel(ctx context.Context, namespace, key, value string) error {
	return s.db.Update(func(tx *bolt.Tx) error { return metadata.NewNamespaceStore(tx).SetLabel(ctx, namespace, key, value) })
}

// List implements namespaces.Store.
func (s *store) List(ctx context.Context) (all []string, err error) {
	err = s.db.View(func(tx *bolt.Tx) (err error) {
		all, err = metadata.NewNamespaceStore(tx).List(ctx)
		return err
	})
	return all, err
}

// Delete implements namespaces.Store.
func (s *store) Delete(ctx context.Context, namespace string, opts ...namespaces.DeleteOpts) error {
	return s.db.Update(func(tx *bolt.Tx) error { return metadata.NewNamespaceStore(tx).Delete(ctx, namespace, opts...) })
}
