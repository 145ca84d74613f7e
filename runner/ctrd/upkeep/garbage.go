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

// What a container leaves goes when its successor has taken its place: the record and the snapshot at once, its log
// when it is not the previous one any more. The rest of this file is about what no such event comes for: a kill or
// a power cut between two steps of a removal, and a disk that is nearly full.

// garbageEvery is the period of the safety net.
const garbageEvery = 6 * time.Hour

// Garbage makes room on the disk.
type Garbage struct {
	Client    *client.Client
	Index     *record.Index
	Lifecycle *container.Lifecycle
	PodLogs   *podlogs.Logs
	ImageUse  *imageuse.Images
	Reserve   *reserve.Reserve
	// Endpoint is that of another containerd; empty: ours is in this process.
	Endpoint    string
	Snapshotter string
	// WithNamespace puts the containerd namespace on a context.
	WithNamespace func(context.Context) context.Context
	Log           *slog.Logger
}

// CollectGarbage has containerd finish what an earlier one began, then looks for what was left behind, once in a long time.
func (r *Garbage) CollectGarbage(ctx context.Context) {
	if r.Endpoint == "" && pause.For(ctx, FinishAfter) {
		if err := r.finishCollection(ctx); err != nil {
			r.Log.Warn("have containerd remove what an earlier one has left", "err", err)
		}
	}
	for pause.For(ctx, garbageEvery) {
		if err := errors.Join(r.PodLogs.CleanLogs(), r.PodLogs.CleanLinks(false)); err != nil {
			r.Log.Warn("clean up logs", "err", err)
		}
	}
}

// FinishAfter is how long after the start containerd is asked to finish: it collects a second after a deletion, and five after its start.
const FinishAfter = 4 * time.Second

// unneeded names what finishCollection makes and deletes.
const unneeded = "monopod.dev/unneeded"

// finishCollection deletes a blob and a snapshot that nobody needs. containerd first forgets what nobody needs and then removes the
// files; when it is killed in between, these stay until something else is deleted, because only then it looks for them.
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

// ReclaimContainers makes room on the disk with what containers that have ended left: their writable layers and the
// logs that nobody needs to understand what runs. It returns how many bytes that were. Their records stay, and with
// them the status of their pods.
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
