package upkeep

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"

	"monopod/manifests"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/image/pull"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/metatest"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/volume"
)

// newJanitor returns a Janitor with the record of a container c in a sandbox s, and a context with its namespace.
func newJanitor(t *testing.T) (*Janitor, context.Context) {
	t.Helper()
	c, ctx := metatest.New(t)
	d, log, index := layout.Dirs{Root: t.TempDir(), State: t.TempDir()}, slog.New(slog.DiscardHandler), record.NewIndex()
	key := manifests.Key{Namespace: "default", Name: "web"}
	index.PutSandbox(&record.Sandbox{ID: "s", Meta: record.SandboxMeta{Key: key, UID: "u", State: record.Active}})
	index.PutContainer(&record.Container{ID: "c", Meta: record.ContainerMeta{Key: key, UID: "u", SandboxID: "s"}})
	return &Janitor{
		Client: c, Records: &record.Store{Client: c, Dirs: d, Index: index, Log: log}, Index: index, Dirs: d, Snapshotter: metatest.Snapshotter, Log: log,
	}, ctx
}

func TestLeasesOfAKilledAgentAreDeletedExceptThoseOfPulls(t *testing.T) {
	r, ctx := newJanitor(t)
	service := r.Client.LeasesService()
	for id, labels := range map[string]map[string]string{"work": nil, "pull": {pull.LabelPull: "a:1"}} {
		if _, err := service.Create(ctx, leases.WithID(id), leases.WithLabels(labels)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		endpoint string
		want     []string
	}{{"unix:///run/other.sock", []string{"pull", "work"}}, {"", []string{"pull"}}} {
		r.Endpoint = tt.endpoint
		if err := r.cleanLeases(ctx); err != nil {
			t.Fatal(err)
		}
		all, err := service.List(ctx)
		var left []string
		for _, l := range all {
			left = append(left, l.ID)
		}
		if slices.Sort(left); err != nil || !slices.Equal(left, tt.want) {
			t.Errorf("endpoint %q: left %v, %v, want %v", tt.endpoint, left, err, tt.want)
		}
	}
}

func TestOnlySnapshotsOfOursThatNothingUsesAreRemoved(t *testing.T) {
	r, ctx := newJanitor(t)
	mine, sn := map[string]string{record.LabelOwner: r.Dirs.Root}, r.Client.SnapshotService(metatest.Snapshotter)
	with := func(sandbox string) map[string]string {
		return map[string]string{record.LabelOwner: r.Dirs.Root, volume.LabelImageVolume: "x", record.LabelSandbox: sandbox}
	}
	for id, labels := range map[string]map[string]string{
		"c": mine, "gone": mine, "volume": with("s"), "volume of none": with("gone"), "other": {record.LabelOwner: "/elsewhere"}, "image": nil,
	} {
		if _, err := sn.Prepare(ctx, id, "", snapshots.WithLabels(labels)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.cleanSnapshots(ctx); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := sn.Walk(ctx, func(_ context.Context, i snapshots.Info) error { left = append(left, i.Name); return nil }); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"c", "image", "other", "volume"}) {
		t.Errorf("left: %q", left)
	}
}

func TestFilesWithoutASandboxOrAContainerAreRemoved(t *testing.T) {
	r, ctx := newJanitor(t)
	for _, name := range []string{"shm/s/x", "shm/gone/x", "image-volumes/s/x", "image-volumes/gone/x", "exits/c.json", "exits/gone.json", "other/gone"} {
		dirtest.Write(t, r.Dirs.Path(filepath.FromSlash(name)), 1)
	}
	if err := r.cleanFiles(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := dirtest.Tree(t, r.Dirs.State), "exits/c.json image-volumes/s/x other/gone shm/s/x"; got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
}

// TestAnInterruptedCollectionIsFinishedWithoutATrace: what makes containerd look for leftovers is removed again.
func TestAnInterruptedCollectionIsFinishedWithoutATrace(t *testing.T) {
	c, ctx := metatest.New(t)
	r := &Garbage{Client: c, Snapshotter: metatest.Snapshotter}
	if _, err := c.SnapshotService(metatest.Snapshotter).Prepare(ctx, unneeded, ""); err != nil { // of an agent that was killed
		t.Fatal(err)
	}
	for range 2 {
		if err := r.finishCollection(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.SnapshotService(metatest.Snapshotter).Stat(ctx, unneeded); err == nil {
		t.Error("the snapshot is left")
	}
	if _, err := c.ContentStore().Info(ctx, digest.FromString(unneeded)); err == nil {
		t.Error("the blob is left")
	}
}
