//go:build e2e

package upkeep_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"

	"monopod/e2e/ctrdtest"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/upkeep"
)

// TestWhatAKilledContainerdWasRemovingIsRemoved has a containerd that has deleted the metadata of a blob and a snapshot, but not
// their files.
func TestWhatAKilledContainerdWasRemovingIsRemoved(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	ctx := a.NS(t.Context())
	layers := filepath.Join(a.Config.RootDirectory, "containerd", "io.containerd.snapshotter.v1.overlayfs", "snapshots")
	before := len(trees.Names(layers))
	_, err := a.Client.SnapshotService(a.Config.Snapshotter).Prepare(ctx, "lost", "", snapshots.WithLabels(map[string]string{record.LabelGCRoot: "x"}))
	ctrdtest.Check(t, err)
	a.Stop(t)
	db, err := bolt.Open(filepath.Join(a.Config.RootDirectory, "containerd", "io.containerd.metadata.v1.bolt", "meta.db"), 0o600, nil)
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("v1")).Bucket([]byte(a.Config.Namespace)).Bucket([]byte("snapshots")).Bucket([]byte(a.Config.Snapshotter)).DeleteBucket([]byte("lost"))
	}))
	ctrdtest.Check(t, db.Close())
	blob := filepath.Join(a.Dirs.ContentDir(), "blobs", "sha256", digest.FromString("lost").Encoded())
	ctrdtest.Check(t, os.WriteFile(blob, []byte("lost"), 0o600))
	if now := len(trees.Names(layers)); now != before+1 {
		t.Fatalf("%d snapshots, were %d: this test proves nothing", now, before)
	}
	a = w.Open(t)
	defer a.End(t)
	ctrdtest.Within(t, upkeep.FinishAfter+20*time.Second, "the files are gone", func() bool {
		_, err := os.Stat(blob)
		return os.IsNotExist(err) && len(trees.Names(layers)) == before
	})
}
