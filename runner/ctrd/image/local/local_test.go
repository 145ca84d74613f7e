package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/metatest"
	"monopod/runner/spec"
)

// newStore returns a store without images, and what it reported as full.
func newStore(t *testing.T) (s *Store, ctx context.Context, full *[]int64) {
	t.Helper()
	c, ctx := metatest.New(t)
	full = new([]int64)
	return New(Config{
		Client: c, Snapshotter: metatest.Snapshotter, Log: slog.New(slog.DiscardHandler), OnFull: func(n int64) { *full = append(*full, n) },
	}), ctx, full
}

// An artifact would be an empty directory.
func TestAnArtifactIsNoImage(t *testing.T) {
	s, ctx, _ := newStore(t)
	metatest.Artifact(ctx, t, s.Client, "example.test/rules:1", "application/json", "application/octet-stream")
	metatest.Artifact(ctx, t, s.Client, "example.test/model:1", ocispec.MediaTypeImageLayer)
	for _, name := range []string{"example.test/rules:1", "example.test/model:1"} {
		if img, err := s.Inspect(ctx, name); !errors.Is(err, image.ErrArtifact) {
			t.Errorf("%s: %+v, %v", name, img, err)
		}
	}
	metatest.Artifact(ctx, t, s.Client, "example.test/scratch:1")
	if _, err := s.Inspect(ctx, "example.test/scratch:1"); errors.Is(err, image.ErrArtifact) {
		t.Errorf("an image without layers: %v", err)
	}
}

func TestImagesAreInspectedByNameAndByDigest(t *testing.T) {
	s, ctx, _ := newStore(t)
	target, config := metatest.Image(ctx, t, s.Client, "/app", "example.com/a:1")
	pulled := images.Image{Name: "example.com/a:1", Target: target, Labels: map[string]string{image.LabelPulled: "example.com/a@sha256:1"}}
	if _, err := s.Client.ImageService().Update(ctx, pulled); err != nil {
		t.Fatal(err)
	}
	byDigest := "example.com/other@" + target.Digest.String()
	for _, name := range []string{"example.com/a:1", byDigest} {
		img, err := s.Inspect(ctx, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if img.Name != name || img.ID != config.Digest.String() || img.Target != target.Digest.String() || img.Digest != "example.com/a@sha256:1" ||
			img.ChainID != metatest.Chain("/app") || len(img.Config.Cmd) != 1 {
			t.Errorf("%s: %+v", name, img)
		}
	}
	for _, name := range []string{"example.com/a:2", "example.com/a@" + digest.FromString("x").String(), "No Name"} {
		if _, err := s.Inspect(ctx, name); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if rec, err := s.Record(ctx, byDigest); err != nil || rec.Name != "example.com/a:1" {
		t.Errorf("by its digest: %+v, %v", rec, err)
	}
	if n, none := s.Size(ctx, "example.com/a:1"), s.Size(ctx, "example.com/a:2"); n < target.Size || none != 0 {
		t.Errorf("sizes %d and %d", n, none)
	}
	// A description is kept, because content does not change; what is replaced is read again.
	if err := s.Client.ContentStore().Delete(ctx, config.Digest); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Inspect(ctx, "example.com/a:1"); err != nil {
		t.Errorf("from memory: %v", err)
	}
	s.ForgetDescriptions()
	if _, err := s.Inspect(ctx, "example.com/a:1"); !errdefs.IsNotFound(err) {
		t.Errorf("its config is missing: %v", err)
	}
}

func TestAnImageIsRemovedWithAllItsNames(t *testing.T) {
	s, ctx, _ := newStore(t)
	target, _ := metatest.Image(ctx, t, s.Client, "/app", "a:1", "a:2")
	metatest.Image(ctx, t, s.Client, "/other", "b:1")
	if err := s.Remove(ctx, target.Digest.String(), func() bool { return true }); !errors.Is(err, image.ErrNeeded) {
		t.Errorf("it is needed: %v", err)
	}
	if _, err := s.Inspect(ctx, "a:1"); err != nil {
		t.Error(err)
	}
	for range 2 { // the second time there is nothing
		if err := s.Remove(ctx, target.Digest.String(), func() bool { return false }); err != nil {
			t.Error(err)
		}
	}
	left, err := s.Client.ImageService().List(ctx)
	if err != nil || len(left) != 1 || left[0].Name != "b:1" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestTheMediaTypeOfContentIsFound(t *testing.T) {
	s, ctx, _ := newStore(t)
	for text, want := range map[string]string{
		`{"mediaType": "application/x", "manifests": []}`: "application/x",
		`{"manifests": []}`: ocispec.MediaTypeImageIndex,
		`{"config": {}}`:    ocispec.MediaTypeImageManifest,
		`no JSON`:           "",
	} {
		d := metatest.Blob(ctx, t, s.Client, "", []byte(text))
		got, err := s.Target(ctx, d.Digest.String())
		if got.MediaType != want || (err == nil) != (want != "") || err == nil && (got.Digest != d.Digest || got.Size != d.Size) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if _, err := s.Target(ctx, digest.FromString("x").String()); !errdefs.IsNotFound(err) {
		t.Errorf("missing: %v", err)
	}
	if _, err := s.Target(ctx, "nonsense"); err == nil {
		t.Error("nonsense is a digest")
	}
}

// TestWhatIsWrittenIsKeptUntilItIsDone: a lease keeps content from the garbage collector.
func TestWhatIsWrittenIsKeptUntilItIsDone(t *testing.T) {
	s, ctx, full := newStore(t)
	leases := func() int {
		t.Helper()
		all, err := s.Client.LeasesService().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	failure := errors.New("unexpected EOF")
	for name, tt := range map[string]struct {
		err  error
		full int
	}{"it succeeds": {}, "it fails": {err: failure}, "the disk is full": {err: bounded.ErrFull, full: 1}} {
		*full = nil
		writing, done, err := s.Writing(ctx, 100)
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.Client.ContentStore().Writer(writing, content.WithRef("part"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if leases() != 1 {
			t.Errorf("%s: %d leases while it is written", name, leases())
		}
		if err := done(tt.err); !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", name, err)
		}
		if leases() != 0 || len(*full) != tt.full || tt.full > 0 && (*full)[0] != 300 {
			t.Errorf("%s: %d leases left, reported %v", name, leases(), *full)
		}
		if part, err := s.Client.ContentStore().ListStatuses(ctx); err != nil || (len(part) > 0) != (tt.err == nil) {
			t.Errorf("%s: incomplete content %v, %v", name, part, err)
		}
		if err := s.Client.ContentStore().Abort(ctx, "part"); err != nil && !errdefs.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func TestTheNamespaceOfTheCallerIsKept(t *testing.T) {
	s, ctx, _ := newStore(t)
	if ns, _ := namespaces.Namespace(s.Namespaced(t.Context())); ns != s.Client.DefaultNamespace() {
		t.Errorf("without one: %q", ns)
	}
	if ns, _ := namespaces.Namespace(s.Namespaced(namespaces.WithNamespace(ctx, "mine"))); ns != "mine" {
		t.Errorf("with one: %q", ns)
	}
}

func TestDirectoriesAreCopiedOutOfAnImage(t *testing.T) {
	root := t.TempDir()
	dirtest.Write(t, filepath.Join(root, "data", "sub", "file"), 1)
	dirtest.Write(t, filepath.Join(root, "file"), 1)
	for link, to := range map[string]string{"inside": "/data", "outside": "../../../../../../../../../etc"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/data": "sub/file", "/inside": "sub/file", "/data/sub": "file", "/missing": "", "/outside": ""} {
		to := t.TempDir()
		if err := unlimited().copyOut(t.Context(), root, path, to); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if got := dirtest.Tree(t, to); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if err := unlimited().copyOut(t.Context(), root, "/file", t.TempDir()); err == nil {
		t.Error("a file was copied as a directory")
	}
}

func TestAUserOfAnImageIsLookedUpOnce(t *testing.T) {
	k := &users{}
	looks, fails := 0, true
	groups := []uint32{1, 2}
	look := func() (spec.User, error) {
		if looks++; fails {
			return spec.User{}, errors.New("the image cannot be mounted")
		}
		return spec.User{UID: 7, Groups: groups}, nil
	}
	if _, err := k.get(nil, nil, look); err == nil {
		t.Error("the error is lost")
	}
	fails = false
	for range 2 {
		u, err := k.get(nil, nil, look)
		if err != nil || u.UID != 7 || !slices.Equal(u.Groups, []uint32{1, 2}) || looks != 2 {
			t.Errorf("%+v, %v after %d looks", u, err, looks)
		}
		u.Groups[0] = 99 // belongs to the caller
	}
	for i := range int64(3 * maxKnown) {
		if _, err := k.get(&i, &i, look); err != nil || len(k.known) > maxKnown {
			t.Fatalf("%d results are kept: %v", len(k.known), err)
		}
	}
	if looks != 2+3*maxKnown {
		t.Errorf("%d looks: ids of pods are mixed up", looks)
	}
	one, many := int64(-1), looks
	groups = make([]uint32, maxKnownGroups+1)
	for range 2 {
		if _, err := k.get(&one, nil, look); err != nil {
			t.Error(err)
		}
	}
	if looks != many+2 {
		t.Error("a large result is kept")
	}
}
