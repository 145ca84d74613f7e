//go:build e2e

package inventory_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/ctrd/image/imagestore"
)

// keeper collects images on a simulated disk with a usage in percent.
type keeper struct {
	*imagestore.Store
	c          *client.Client
	percent    int64
	refs, digs []string
	used       map[string]bool
	blind      error
	unknown    error
}

func (k *keeper) collect(t *testing.T, policy gc.Policy, bytes int64) image.Collected {
	t.Helper()
	out, err := k.try(t, policy, bytes)
	imagetest.Check(t, err)
	return out
}

func (k *keeper) try(t *testing.T, policy gc.Policy, bytes int64) (image.Collected, error) {
	t.Helper()
	began := imagetest.ContentBytes(t, k.c)
	return k.Inventory.Collect(t.Context(), image.Collection{
		Policy: policy, Bytes: bytes, Needs: func() ([]string, []string, error) { return k.refs, k.digs, k.unknown },
		Used: func() (map[string]bool, error) { return k.used, k.blind },
		// Of 1000 MB, and what goes is free then.
		Disk: func() (gc.Disk, error) {
			return gc.Disk{Capacity: 1_000_000_000, Available: (100-k.percent)*10_000_000 + began - imagetest.ContentBytes(t, k.c)}, nil
		},
	})
}

func (k *keeper) names(t *testing.T) []string {
	t.Helper()
	all, err := k.Inventory.List(t.Context())
	imagetest.Check(t, err)
	var names []string
	for i := range all {
		names = append(names, all[i].Names...)
	}
	return names
}

func TestCollectedImagesAreGoneFromTheDiskAndNeededOnesStay(t *testing.T) {
	c := imagetest.Containerd(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "preloaded.tar")
	testimages.ArchiveOf(t, archive, testimages.FromFiles(t, []testimages.File{{Path: "x", Content: imagetest.Noise(9, 1<<20), Mode: 0o644}}, nil), "preloaded:1")
	k := &keeper{Store: imagetest.Store(t, c, func(c *imagestore.Config) { c.PreloadDirs = []string{dir} }), c: c, percent: 99}
	stop, err := imagetest.RunPreload(t, k.Store)
	imagetest.Check(t, err)
	stop()
	reg := testimages.Registry(t)
	digests := map[string]string{}
	for i, name := range []string{"needed", "by-digest", "pinned", "used", "twice", "spare"} {
		ref := reg + "/" + name + ":1"
		testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: name, Content: imagetest.Noise(uint64(10+i), 1<<20), Mode: 0o644}}, nil))
		img, err := k.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
		imagetest.Check(t, err)
		digests[name] = img.Target
		if name == "twice" {
			testimages.Push(t, reg+"/other:1", testimages.FromFiles(t, []testimages.File{{Path: name, Content: imagetest.Noise(uint64(10+i), 1<<20), Mode: 0o644}}, nil))
			_, err = k.Ensure(t.Context(), reg+"/other:1", corev1.PullIfNotPresent)
			imagetest.Check(t, err)
		}
	}
	if _, err := k.SyncPins(t.Context(), "/root", []string{digests["pinned"]}); err != nil {
		t.Fatal(err)
	}
	k.refs, k.digs, k.used = []string{reg + "/needed:1", "never/heard:of"}, []string{digests["by-digest"]}, map[string]bool{digests["used"]: true}
	imagetest.Check(t, k.Inventory.RecordUse(t.Context(), k.used))

	policy := gc.Policy{High: 85, Low: 80, MinAge: time.Hour}
	all := k.names(t)
	if out := k.collect(t, policy, 0); len(out.Removed) != 0 || out.Short == 0 {
		t.Errorf("all are too young: %+v", out)
	}
	policy.MinAge = 0
	k.percent = 84
	if out := k.collect(t, policy, 0); len(out.Removed) != 0 || !slices.Equal(all, k.names(t)) {
		t.Errorf("the disk is not full: %+v", out)
	}
	k.percent, k.blind = 99, errors.New("containerd is away")
	if out, err := k.try(t, policy, 0); !errors.Is(err, k.blind) || len(out.Removed) != 0 || !slices.Equal(all, k.names(t)) {
		t.Errorf("the runtime does not respond: %+v, %v", out, err)
	}
	k.blind, k.unknown = nil, errors.New("not all sources have been read")
	if out, err := k.try(t, policy, 0); !errors.Is(err, k.unknown) || len(out.Removed) != 0 || !slices.Equal(all, k.names(t)) {
		t.Errorf("nobody can tell what is needed: %+v, %v", out, err)
	}
	k.unknown = nil
	before := imagetest.ContentBytes(t, c)
	out := k.collect(t, policy, 0)
	want := []string{"docker.io/library/preloaded:1", reg + "/by-digest:1", reg + "/needed:1", reg + "/pinned:1", reg + "/used:1"}
	slices.Sort(want)
	if got := k.names(t); !slices.Equal(got, want) || len(out.Removed) != 2 || out.Short == 0 {
		t.Errorf("left: %v\nwant: %v\n%+v", got, want, out)
	}
	if freed := before - imagetest.ContentBytes(t, c); freed < 2<<20 {
		t.Errorf("%d bytes of content went", freed)
	}
	snaps, err := imagetest.Snapshots(t, c)
	imagetest.Check(t, err)
	if len(snaps) != len(want) {
		t.Errorf("snapshots: %v", snaps)
	}
	// Remaining images can be used, removed ones are pulled again.
	k.present(t, want...)
	if _, err := k.Ensure(t.Context(), reg+"/spare:1", corev1.PullNever); imagetest.Reason(err) != runner.ReasonErrImageNeverPull {
		t.Errorf("what went: %v", err)
	}
	if _, err := k.Ensure(t.Context(), reg+"/spare:1", corev1.PullIfNotPresent); err != nil {
		t.Error(err)
	}

	// An archive that is removed does not keep its image, nor does a manifest that is gone.
	imagetest.Check(t, os.Remove(archive))
	k.refs = nil
	out = k.collect(t, gc.Policy{High: 100}, 1)
	if len(out.Removed) != 1 || out.Freed == 0 {
		t.Errorf("one byte is asked for: %+v", out)
	}
	out = k.collect(t, gc.Policy{High: 100}, gc.All)
	if got := k.names(t); !slices.Equal(got, []string{reg + "/by-digest:1", reg + "/pinned:1", reg + "/used:1"}) {
		t.Errorf("left: %v, %+v", got, out)
	}
}

func (k *keeper) present(t *testing.T, names ...string) {
	t.Helper()
	imagetest.Present(t, k.Store, names...)
}

func TestWhenAnImageWasLastUsedIsKnownAfterARestart(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil))
	img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	info := func() image.Info {
		t.Helper()
		all, err := imagetest.Store(t, c, nil).Inventory.List(t.Context()) // of a new run
		imagetest.Check(t, err)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	if i := info(); !i.LastUsed.IsZero() || i.UsedNow || i.Size < 1<<20 || i.Own != i.Size || i.FirstSeen.IsZero() ||
		!slices.Equal(i.Names, []string{ref}) || !slices.Equal(i.RepoDigests, []string{img.Digest}) {
		t.Errorf("never used: %+v", i)
	}
	used := map[string]bool{img.Target: true}
	imagetest.Check(t, s.Inventory.RecordUse(t.Context(), used))
	if i := info(); !i.UsedNow || !i.LastUsed.IsZero() {
		t.Errorf("in use: %+v", i)
	}
	rec, err := c.ImageService().Get(imagetest.NS(t), ref)
	imagetest.Check(t, err)
	imagetest.Check(t, s.Inventory.RecordUse(t.Context(), used))
	again, err := c.ImageService().Get(imagetest.NS(t), ref)
	imagetest.Check(t, err)
	if !again.UpdatedAt.Equal(rec.UpdatedAt) || !maps.Equal(again.Labels, rec.Labels) || rec.Labels[image.LabelPulled] != img.Digest {
		t.Errorf("it is written again: %+v, %+v", rec, again)
	}
	// It was killed meanwhile: that it was used until now is known all the same.
	imagetest.Check(t, imagetest.Store(t, c, nil).Inventory.RecordUse(t.Context(), map[string]bool{}))
	i := info()
	if i.UsedNow || time.Since(i.LastUsed) > time.Minute {
		t.Errorf("used until now: %+v", i)
	}
	imagetest.Check(t, s.Inventory.RecordUse(t.Context(), map[string]bool{}))
	if last := info(); !last.LastUsed.Equal(i.LastUsed) {
		t.Errorf("%s, then %s", i.LastUsed, last.LastUsed)
	}
}
