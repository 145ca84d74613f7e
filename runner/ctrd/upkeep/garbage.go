package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/pause"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/imageuse"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/reserve"
	"monopod/runner/ctrd/trees"
)

// The leftovers of a container are removed when its successor has started: record and snapshot at once, the log when it is no
// longer the previous one. This file handles the rest: a kill or a power cut between two steps of a removal, and a disk that is
// nearly full.

// garbageEvery is the interval of the search for leftovers.
const garbageEvery = 6 * time.Hour

// Garbage frees disk space.
type Garbage struct {
	Client    *client.Client
	Index     *record.Index
	Lifecycle *container.Lifecycle
	PodLogs   *podlogs.Logs
	ImageUse  *imageuse.Images
	Reserve   *reserve.Reserve
	// Endpoint is that of an external containerd; empty: containerd runs in this process.
	Endpoint    string
	Snapshotter string
	// WithNamespace adds the containerd namespace to a context.
	WithNamespace func(context.Context) context.Context
	Log           *slog.Logger
}

// CollectGarbage makes containerd finish an interrupted garbage collection, then searches for leftovers at long intervals.
func (r *Garbage) CollectGarbage(ctx context.Context) {
	if r.Endpoint == "" && pause.For(ctx, FinishAfter) {
		if err := r.finishCollection(ctx); err != nil {
			r.Log.Warn("finish an interrupted garbage collection of containerd", "err", err)
		}
	}
	for pause.For(ctx, garbageEvery) {
		if err := errors.Join(r.PodLogs.CleanLogs(), r.PodLogs.CleanLinks(false)); err != nil {
			r.Log.Warn("clean up logs", "err", err)
		}
	}
}

// FinishAfter is the delay after startup of finishCollection: containerd collects one second after a deletion, and five after its
// start.
const FinishAfter = 4 * time.Second

// unneeded is the name of what finishCollection creates and deletes.
const unneeded = "monopod.dev/unneeded"

// finishCollection creates and deletes a blob and a snapshot. containerd removes unused metadata first and then the files; if it
// is killed in between, the files stay until another deletion makes it look for them.
func (r *Garbage) finishCollection(ctx context.Context) error {
	blob := ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromString(unneeded), Size: int64(len(unneeded))}
	store, snapshotter := r.Client.ContentStore(), r.Client.SnapshotService(r.Snapshotter)
	if err := content.WriteBlob(ctx, store, unneeded, strings.NewReader(unneeded), blob); err != nil {
		return err
	}
	if _, err := snapshotter.Prepare(ctx, unneeded, ""); err != nil && !errdefs.IsAlreadyExists(err) {
		return err
	}
	return errors.Join(fault.IgnoreNotFound(store.Delete(ctx, blob.Digest)), fault.IgnoreNotFound(snapshotter.Remove(ctx, unneeded)))
}

// ReclaimContainers frees disk space that exited containers use: their writable layers, and logs other than the latest. It returns
// the number of bytes. The records stay, and with them the status of the pods.
func (r *Garbage) ReclaimContainers(ctx context.Context) (sum int64, err error) {
	err = r.Reserve.MakingRoom(func() error {
		n, err := r.reclaimContainers(r.WithNamespace(ctx))
		sum += n
		return err
	})
	return sum, err
}

func (r *Garbage) reclaimContainers(ctx context.Context) (int64, error) {
	sum, errs := int64(0), []error{r.PodLogs.CleanLogs()}
	for _, g := range r.PodLogs.LogGroups() {
		used, running := r.PodLogs.LogNumbers(g.Dir)
		for _, f := range podlogs.Expendable(g.Files, used, running) {
			if err := trees.RemoveFile(filepath.Join(g.Dir, f.Name)); err != nil {
				errs = append(errs, err)
				continue
			}
			sum += f.Size
		}
	}
	for _, rec := range r.Index.All() {
		n, err := r.Lifecycle.DropLayer(ctx, rec)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(append(errs, r.ImageUse.FreeLayers(ctx))...)
}
