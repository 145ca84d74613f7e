//go:build e2e

package ctrd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"

	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/upkeep"
)

// TestWhatAKilledContainerdWasRemovingIsRemoved has a containerd that has deleted the metadata of a blob and a snapshot, but not
// their files.
func TestWhatAKilledContainerdWasRemovingIsRemoved(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	ctx := a.ns(t.Context())
	layers := filepath.Join(a.cfg.RootDirectory, "containerd", "io.containerd.snapshotter.v1.overlayfs", "snapshots")
	before := len(trees.Names(layers))
	_, err := a.client.SnapshotService(a.cfg.Snapshotter).Prepare(ctx, "lost", "", snapshots.WithLabels(map[string]string{record.LabelGCRoot: "x"}))
	check(t, err)
	a.stop(t)
	db, err := bolt.Open(filepath.Join(a.cfg.RootDirectory, "containerd", "io.containerd.metadata.v1.bolt", "meta.db"), 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("v1")).Bucket([]byte(a.cfg.Namespace)).Bucket([]byte("snapshots")).Bucket([]byte(a.cfg.Snapshotter)).DeleteBucket([]byte("lost"))
	}))
	check(t, db.Close())
	blob := filepath.Join(a.dirs.ContentDir(), "blobs", "sha256", digest.FromString("lost").Encoded())
	check(t, os.WriteFile(blob, []byte("lost"), 0o600))
	if now := len(trees.Names(layers)); now != before+1 {
		t.Fatalf("%d snapshots, were %d: this test proves nothing", now, before)
	}
	a = w.open(t)
	defer a.end(t)
	within(t, upkeep.FinishAfter+20*time.Second, "the files are gone", func() bool {
		_, err := os.Stat(blob)
		return os.IsNotExist(err) && len(trees.Names(layers)) == before
	})
}
