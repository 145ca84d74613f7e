package inventory

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"

	"monopod/runner/ctrd/image"
)

func TestArchivesByNameOmitsRemovedArchives(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	for _, path := range []string{one, two} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := New(Config{})
	v.RecordArchive(two, []string{"a", "b"})
	v.RecordArchive(one, []string{"a"})
	if got := v.ArchivesByName(); !slices.Equal(got["a"], []string{one, two}) || !slices.Equal(got["b"], []string{two}) {
		t.Errorf("both exist: %v", got)
	}
	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	if got := v.ArchivesByName(); !slices.Equal(got["a"], []string{one}) || len(got["b"]) != 0 {
		t.Errorf("one was removed: %v", got)
	}
	v.RecordArchive(one, []string{"c"})
	if got := v.ArchivesByName(); len(got["a"]) != 0 || !slices.Equal(got["c"], []string{one}) {
		t.Errorf("its content changed: %v", got)
	}
}

func TestRecordsOfOneImageAreMerged(t *testing.T) {
	used := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first := used.Add(-time.Hour)
	i := &image.Info{Digest: "sha256:1", FirstSeen: used}
	archives := map[string][]string{"a:1": {"/d/a.tar"}, "a:2": {"/d/a.tar", "/d/b.tar"}}
	for _, rec := range []images.Image{
		{Name: "a:1", CreatedAt: first, Labels: map[string]string{image.LabelPulled: "a@sha256:1"}},
		{Name: "a:2", CreatedAt: used, Labels: map[string]string{image.LabelPulled: "a@sha256:1", image.LabelLastUsed: used.Format(time.RFC3339)}},
		{Name: "pinned/1", CreatedAt: used, Labels: map[string]string{image.LabelPin: "/root", image.LabelLastUsed: image.UsedNow}},
		{Name: "pinned/2", CreatedAt: used, Labels: map[string]string{image.LabelPin: "/root", image.LabelLastUsed: "damaged"}},
	} {
		add(i, rec, archives)
	}
	if !slices.Equal(i.Names, []string{"a:1", "a:2"}) || !slices.Equal(i.RepoDigests, []string{"a@sha256:1"}) || !slices.Equal(i.Pins, []string{"/root"}) {
		t.Errorf("names %v, digests %v, pins %v", i.Names, i.RepoDigests, i.Pins)
	}
	if !slices.Equal(i.Archives, []string{"/d/a.tar", "/d/b.tar"}) || !i.UsedNow || !i.LastUsed.Equal(used) || !i.FirstSeen.Equal(first) {
		t.Errorf("archives %v, used %t and %s, first seen %s", i.Archives, i.UsedNow, i.LastUsed, i.FirstSeen)
	}
}
