//go:build e2e

package imagestore_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/imagestore"
)

func pins(t *testing.T, c *client.Client) []images.Image {
	t.Helper()
	list, err := c.ImageService().List(imagetest.NS(t), `labels."`+image.LabelPin+`"`)
	imagetest.Check(t, err)
	return list
}

// TestAPinnedImageOutlivesItsTag imports a tag three times with other content each time, and pins the first.
func TestAPinnedImageOutlivesItsTag(t *testing.T) {
	c := imagetest.Containerd(t)
	dir := t.TempDir()
	const tag = "example.com/app:stable"
	digests := map[string]string{}
	bring := func(name string) {
		t.Helper()
		file := filepath.Join(dir, "app.tar")
		imagetest.Check(t, os.RemoveAll(file))
		testimages.ArchiveOf(t, file, imagetest.Edition(t, name), tag)
		s := imagetest.Store(t, c, func(c *imagestore.Config) { c.PreloadDirs = []string{dir} })
		stop, err := imagetest.RunPreload(t, s)
		imagetest.Check(t, err)
		stop()
		img, err := s.Get(t.Context(), tag)
		imagetest.Check(t, err)
		if !slices.Contains(img.Config.Env, "EDITION="+name) || img.Digest != "" {
			t.Fatalf("the tag is %+v", img)
		}
		digests[name] = img.Target
	}
	s := imagetest.Store(t, c, nil) // one that has seen nothing yet
	runs := func(name string) error {
		img, err := s.Ensure(t.Context(), image.AtDigest(tag, digests[name]), corev1.PullNever)
		if err == nil && (!slices.Contains(img.Config.Env, "EDITION="+name) || img.Target != digests[name]) {
			t.Errorf("edition %s is %+v", name, img)
		}
		if err == nil {
			err = s.Local.View(imagetest.NS(t), img.ChainID, func(root string) error {
				if b, err := os.ReadFile(filepath.Join(root, "edition")); err != nil || string(b) != name {
					t.Errorf("edition %s holds %q, %v", name, b, err)
				}
				return nil
			})
		}
		return err
	}
	bring("one")
	imagetest.Pinned(t, s, "me", digests["one"])
	bring("two")
	bring("three")
	imagetest.Collect(t, c)
	imagetest.Check(t, runs("one"))
	imagetest.Check(t, runs("three"))
	if err := runs("two"); imagetest.Reason(err) != "ErrImageNeverPull" {
		t.Errorf("the one that nobody wants: %v", err)
	}
	if _, err := c.ContentStore().Info(imagetest.NS(t), digest.Digest(digests["two"])); !errdefs.IsNotFound(err) {
		t.Errorf("its content: %v", err)
	}

	// The record of the tag goes too. A second instance keeps what it wants, for itself.
	imagetest.Pinned(t, s, "other", digests["three"])
	imagetest.Check(t, c.ImageService().Delete(imagetest.NS(t), tag))
	imagetest.Collect(t, c)
	imagetest.Check(t, runs("one"))
	imagetest.Check(t, runs("three"))
	before := pins(t, c)
	again := []string{digests["one"], digests["one"]}
	imagetest.Pinned(t, imagetest.Store(t, c, nil), "me", again...)
	if after := pins(t, c); len(after) != 2 || !slices.EqualFunc(before, after, func(a, b images.Image) bool { return a.Name == b.Name && a.UpdatedAt.Equal(b.UpdatedAt) }) {
		t.Errorf("written again:\n%v\n%v", before, after)
	}

	// What is gone does not keep others from being pinned, and what is given up goes.
	gone, err := s.SyncPins(t.Context(), "me", []string{digests["two"], "sha256:nonsense", digests["three"]})
	if !slices.Equal(gone, []string{digests["two"]}) || err == nil || !strings.Contains(err.Error(), "sha256:nonsense") {
		t.Errorf("gone: %v, %v", gone, err)
	}
	imagetest.Collect(t, c)
	if err := runs("one"); err == nil {
		t.Error("one stays without a pin")
	}
	imagetest.Pinned(t, s, "other")
	imagetest.Collect(t, c)
	imagetest.Check(t, runs("three"))
	imagetest.Pinned(t, s, "me")
	imagetest.Collect(t, c)
	if left := pins(t, c); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if keys, err := imagetest.Snapshots(t, c); err != nil || len(keys) != 0 {
		t.Errorf("snapshots are left: %v, %v", keys, err)
	}
}

func TestAPulledIndexCanBePinned(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	ref, err := name.ParseReference(testimages.Registry(t) + "/app:1")
	imagetest.Check(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: imagetest.Edition(t, "one"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}},
	})
	imagetest.Check(t, remote.WriteIndex(ref, index))
	img, err := s.Ensure(t.Context(), ref.Name(), corev1.PullAlways)
	imagetest.Check(t, err)
	if want, err := index.Digest(); err != nil || img.Target != want.String() || !strings.HasSuffix(img.Digest, "@"+img.Target) {
		t.Errorf("the registry has %s, %v; here is %s, %s", want, err, img.Target, img.Digest)
	}
	imagetest.Pinned(t, s, "me", img.Target)
	was, err := c.ImageService().Get(imagetest.NS(t), img.Name)
	imagetest.Check(t, err)
	if p := pins(t, c); len(p) != 1 || p[0].Target.Digest != was.Target.Digest || p[0].Target.MediaType != was.Target.MediaType || p[0].Target.Size != was.Target.Size {
		t.Errorf("pinned %+v instead of %+v", p, was.Target)
	}
	imagetest.Check(t, c.ImageService().Delete(imagetest.NS(t), img.Name))
	imagetest.Collect(t, c)
	if again, err := s.Ensure(t.Context(), image.AtDigest(ref.Name(), img.Target), corev1.PullNever); err != nil || again.ChainID != img.ChainID {
		t.Errorf("without its tag: %+v, %v", again, err)
	}
}

// TestWhatIsPulledForADigestIsGivenUpWithIt pulls what a tag stood for before. Another pod asks for such a digest itself.
func TestWhatIsPulledForADigestIsGivenUpWithIt(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	tag := testimages.Registry(t) + "/app:stable"
	digests := map[string]string{}
	for _, e := range []string{"one", "two", "three"} {
		img := imagetest.Edition(t, e)
		d, err := img.Digest()
		imagetest.Check(t, err)
		digests[e] = d.String()
		testimages.Push(t, tag, img)
	}
	names := func() []string {
		t.Helper()
		list, err := c.ImageService().List(imagetest.NS(t))
		imagetest.Check(t, err)
		var all []string
		for i := range list {
			all = append(all, list[i].Name)
		}
		slices.Sort(all)
		return all
	}
	asked := image.AtDigest(tag, digests["two"])
	_, err := s.Ensure(t.Context(), asked, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	for _, e := range []string{"one", "two", "one"} {
		img, err := s.EnsureDigest(t.Context(), "me", tag, digests[e], corev1.PullIfNotPresent)
		imagetest.Check(t, err)
		again, err := s.Get(t.Context(), image.AtDigest(tag, digests[e]))
		imagetest.Check(t, err)
		for _, img := range []*image.Image{img, again} {
			if img.Target != digests[e] || img.Digest != image.AtDigest(tag, digests[e]) || !slices.Contains(img.Config.Env, "EDITION="+e) {
				t.Errorf("edition %s is %+v", e, img)
			}
		}
	}
	if got, want := names(), []string{asked, imagestore.PinName("me", digests["one"])}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	imagetest.Pinned(t, s, "me", digests["one"], digests["two"])
	imagetest.Pinned(t, s, "me")
	imagetest.Collect(t, c)
	if got := names(); !slices.Equal(got, []string{asked}) {
		t.Errorf("left are %q", got)
	}
	if _, err := c.ContentStore().Info(imagetest.NS(t), digest.Digest(digests["one"])); !errdefs.IsNotFound(err) {
		t.Errorf("its content: %v", err)
	}
	if _, err := s.Ensure(t.Context(), asked, corev1.PullNever); err != nil {
		t.Errorf("what a pod asks for by its digest: %v", err)
	}
}
