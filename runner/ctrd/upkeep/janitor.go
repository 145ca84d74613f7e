package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/image/pull"
	"monopod/runner/ctrd/image/repair"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/volume"
	"monopod/runner/ctrd/volumes"
	"monopod/runner/spec"
)

// Janitor removes leftovers of an earlier run at startup.
type Janitor struct {
	Client       *client.Client
	Records      *record.Store
	Index        *record.Index
	Dirs         layout.Dirs
	Net          *network.Network
	Logs         *logs.Collector
	PodLogs      *podlogs.Logs
	PodCgroups   *cgroup.Pods
	ClaimVolumes *volume.Storage
	Secrets      *volume.Secrets
	Pauses       *sandbox.Pauses
	Shims        *shims.Killer
	Sandboxes    *sandbox.Manager
	Lifecycle    *container.Lifecycle
	Removal      *Remover
	Host         spec.Host
	BootID       string
	// Endpoint is that of an external containerd; empty: containerd runs in this process.
	Endpoint    string
	Snapshotter string
	// CNIConfDir holds the CNI configuration of the default network.
	CNIConfDir string
	Log        *slog.Logger
}

// CleanStart resumes teardowns and removes what belongs to no record. It looks only at what carries our labels or lies in our
// directories. Errors are logged and do not prevent the start.
func (r *Janitor) CleanStart(ctx context.Context) error {
	r.Sandboxes.ResumeTeardowns(ctx)
	if r.Host.Enforce.StaticCPUs || r.PodCgroups.SharedCPUs() != nil {
		r.PodCgroups.ShareCPUs()
	}
	unmade, err := r.discardLeftovers(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what  string
		clean func(context.Context) error
	}{
		{"leases", r.cleanLeases},
		{"shims", func(ctx context.Context) error { return r.Shims.CleanShims(ctx, unmade) }}, // first, because they keep other things in use
		{"process namespaces", r.cleanPauses},
		{"namespaces", r.cleanNamespaces},
		{"files", r.cleanFiles},
		{"snapshots", r.cleanSnapshots}, // after their mounts
		{"pod directories", r.cleanPods},
		{"temporary files", func(context.Context) error { return r.cleanTemps(time.Now()) }},
		{"logs", func(context.Context) error { return errors.Join(r.PodLogs.CleanLogs(), r.PodLogs.CleanLinks(true)) }},
	} {
		if err := c.clean(ctx); err != nil {
			r.Log.Warn("clean up after an earlier run", "what", c.what, "err", err)
		}
	}
	return nil
}

// discardLeftovers removes containers that were never started, and those without a sandbox record. It returns the ids of those
// without a task, of whose shims containerd knows nothing.
func (r *Janitor) discardLeftovers(ctx context.Context) (unmade map[string]bool, err error) {
	unmade = map[string]bool{}
	for _, rec := range r.Index.All() {
		if !rec.Meta.StartedAt.IsZero() || rec.Meta.Exit != nil {
			if r.Index.Sandbox(rec.Meta.Key) == nil && r.Index.SandboxByID(rec.Meta.SandboxID) == nil {
				r.Removal.Discard(rec.ID)
			}
			continue
		}
		t, err := r.Records.Task(ctx, rec.ID)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", rec.ID, err)
		}
		switch record.StatusOf(t) {
		case record.NoTask:
			unmade[rec.ID] = true
			r.Removal.Discard(rec.ID)
		case task.Status_STOPPED:
			r.Removal.Discard(rec.ID)
		}
	}
	return unmade, nil
}

// cleanLeases deletes the leases of a killed agent, which would keep its unfinished work for a day. An interrupted pull resumes
// later with what it has. In an external containerd leases expire.
func (r *Janitor) cleanLeases(ctx context.Context) error {
	if r.Endpoint != "" {
		return nil
	}
	all, err := r.Client.LeasesService().List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if pull.Resumable(l, time.Now()) {
			continue
		}
		errs = append(errs, fault.IgnoreNotFound(r.Client.LeasesService().Delete(ctx, l)))
	}
	return errors.Join(errs...)
}

func (r *Janitor) cleanSnapshots(ctx context.Context) error {
	s := r.Client.SnapshotService(r.Snapshotter)
	var gone []string
	err := s.Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		used := r.Index.Container(i.Name) != nil || i.Labels[volume.LabelImageVolume] != "" && r.Index.SandboxByID(i.Labels[record.LabelSandbox]) != nil
		if i.Labels[record.LabelOwner] == r.Dirs.Root && !used {
			gone = append(gone, i.Name)
		}
		return nil
	}, r.Records.OwnFilter())
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	var errs []error
	for _, name := range gone {
		errs = append(errs, fault.IgnoreNotFound(s.Remove(ctx, name)))
	}
	return errors.Join(errs...)
}

// cleanNamespaces unpins namespaces without a sandbox, after a CNI DEL, because their ADD may have run.
func (r *Janitor) cleanNamespaces(ctx context.Context) error {
	var errs []error
	for _, id := range trees.Names(r.Dirs.Path("ns")) {
		if r.Index.SandboxByID(id) != nil {
			continue
		}
		dir := r.Dirs.NsDir(id)
		if linuxns.Pinned(dir, linuxns.Set{Net: true}) {
			errs = append(errs, r.Net.Teardown(ctx, network.Pod{SandboxID: id, NetNS: filepath.Join(dir, "net")}))
		}
		errs = append(errs, linuxns.Unpin(dir))
	}
	return errors.Join(errs...)
}

// cleanPauses ends process namespaces without a sandbox.
func (r *Janitor) cleanPauses(ctx context.Context) error {
	var errs []error
	for _, id := range trees.Names(r.Dirs.Path("pause")) {
		if r.Index.SandboxByID(id) == nil {
			errs = append(errs, r.Pauses.StopPause(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// cleanFiles removes shm mounts without a sandbox, exit records and FIFOs without a container.
func (r *Janitor) cleanFiles(ctx context.Context) error {
	var errs []error
	for _, id := range trees.Names(r.Dirs.Path("shm")) {
		if r.Index.SandboxByID(id) == nil {
			errs = append(errs, trees.Remove(r.Dirs.ShmDir(id)))
		}
	}
	for _, id := range trees.Names(r.Dirs.Path("image-volumes")) {
		if r.Index.SandboxByID(id) == nil {
			errs = append(errs, trees.Remove(r.Dirs.Path("image-volumes", id)))
		}
	}
	for _, id := range trees.Names(r.Dirs.Path("subpaths")) {
		errs = append(errs, volumes.Unbind(r.Dirs.SubPathDir(id))) // nothing is being created yet
	}
	for _, name := range trees.Names(r.Dirs.Path("exits")) {
		if r.Index.Container(strings.TrimSuffix(name, ".json")) == nil {
			errs = append(errs, trees.RemoveFile(r.Dirs.Path("exits", name)))
		}
	}
	for _, id := range trees.Names(r.Dirs.Path("logs")) {
		if r.Index.Container(id) == nil {
			flush, cancel := context.WithTimeout(ctx, container.LogFlushTimeout)
			errs = append(errs, r.Logs.Finish(flush, id))
			cancel()
		}
	}
	return errors.Join(errs...)
}

// cleanTemps removes old temporary files of killed processes. Other parts of the agent, and shims, may be writing new ones now.
func (r *Janitor) cleanTemps(now time.Time) error {
	errs := []error{
		atomicfile.SweepOld(r.Dirs.Path("exits"), now, "."),
		atomicfile.SweepOld(r.CNIConfDir, now, atomicfile.TempPrefix),
		atomicfile.SweepOld(r.Dirs.ContentDir(), now, repair.TempPrefix),
	}
	for _, top := range []string{r.Dirs.Root, r.Dirs.State} {
		errs = append(errs, atomicfile.SweepOld(top, now, atomicfile.TempPrefix))
		for _, name := range trees.Names(top) {
			errs = append(errs, atomicfile.SweepOld(filepath.Join(top, name), now, atomicfile.TempPrefix))
		}
	}
	return errors.Join(errs...)
}

// cleanPods removes directories, logs and cgroups of pods without a sandbox.
func (r *Janitor) cleanPods(ctx context.Context) error {
	known := map[string]bool{}
	for _, rec := range r.Index.List() {
		known[rec.Meta.UID] = true
	}
	for _, rec := range r.Index.All() {
		known[rec.Meta.UID] = true // the teardown removes those of removing sandboxes
	}
	var errs []error
	for _, uid := range trees.Names(r.Dirs.PodsDir()) {
		if known[uid] {
			continue
		}
		// A kubelet may use the same log directory: only the uid identifies ours.
		for _, name := range trees.Names(r.Dirs.PodLogs) {
			if strings.HasSuffix(name, "_"+uid) {
				errs = append(errs, trees.Remove(filepath.Join(r.Dirs.PodLogs, name)))
			}
		}
		errs = append(errs, r.ClaimVolumes.RemovePodDir(uid))
	}
	errs = append(errs, r.Secrets.CleanSecrets(known), r.ClaimVolumes.Claims.Clean(func(uid string) bool { return known[uid] }))
	for _, uid := range trees.Names(r.Dirs.PodsDir()) {
		errs = append(errs, r.Lifecycle.CleanMessages(uid))
		for _, id := range trees.Names(r.Dirs.ImageVolumeDir(uid, "")) {
			if r.Index.Container(id) == nil {
				errs = append(errs, trees.Remove(r.Dirs.ImageVolumeDir(uid, id)))
			}
		}
	}
	return errors.Join(append(errs, r.PodCgroups.CleanCgroups())...)
}

// ReattachLogs attaches the logs of containers whose files were damaged, by the path in the record. Until then their output waits
// in the FIFOs.
func (r *Janitor) ReattachLogs() {
	attached := map[string]bool{}
	for _, id := range r.Logs.IDs() {
		attached[id] = true
	}
	left := map[string]bool{}
	for _, id := range trees.Names(r.Dirs.Path("logs")) {
		left[id] = true
	}
	for _, rec := range r.Index.All() {
		if attached[rec.ID] || !left[rec.ID] || rec.Meta.BootID != r.BootID || !filepath.IsAbs(rec.Meta.LogPath) {
			continue
		}
		if _, _, err := r.Logs.Attach(rec.ID, rec.Meta.LogPath); err != nil {
			r.Log.Error("cannot attach the log of a container; its output is not copied until it restarts", "pod", rec.Meta.Key.String(), "container", rec.Meta.Name, "err", err)
		}
	}
}
