package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"monopod/internal/atomicfile"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/volumes"
)

// cleanStart takes up what the last run left: teardowns are resumed, and what belongs to no record is removed. Only
// what carries our labels or lies in our directories is looked at. What cannot be removed is no reason not to start.
func (r *Runtime) cleanStart(ctx context.Context) error {
	r.resumeTeardowns(ctx)
	r.commands.left = names(r.path("exec"))
	r.limitFormerPods()
	if r.host.Enforce.StaticCPUs || r.sharedCPUs() != nil {
		r.shareCPUs()
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
		{"shims", func(ctx context.Context) error { return r.cleanShims(ctx, unmade) }}, // before the rest: they keep other things in use
		{"process namespaces", r.cleanPauses},
		{"namespaces", r.cleanNamespaces},
		{"files", r.cleanFiles},
		{"snapshots", r.cleanSnapshots}, // after the mounts of them
		{"pod directories", r.cleanPods},
		{"temporary files", func(context.Context) error { return r.cleanTemps(time.Now()) }},
		{"logs", func(context.Context) error { return errors.Join(r.cleanLogs(), r.cleanLinks(true)) }},
	} {
		if err := c.clean(ctx); err != nil {
			r.log.Warn("clean up what an earlier run left", "what", c.what, "err", err)
		}
	}
	return nil
}

// resumeTeardowns queues removing sandboxes, and older ones of a pod that has two.
func (r *Runtime) resumeTeardowns(ctx context.Context) {
	for _, rec := range r.index.list() {
		if rec.Labels.State == sandboxActive {
			if newest := r.index.sandbox(rec.Labels.Key); newest == nil || newest.ID == rec.ID {
				continue
			}
			if err := r.markRemoving(ctx, rec, runner.Action{}); err != nil {
				r.log.Warn("give up a second sandbox", "sandbox", rec.ID, "err", err)
			}
			continue
		}
		r.teardown.add(rec.ID)
	}
}

// discardLeftovers removes containers that never were started, and those that no sandbox record knows of any more. It
// returns the ids of those without a task: containerd knows of no shim of theirs.
func (r *Runtime) discardLeftovers(ctx context.Context) (unmade map[string]bool, err error) {
	unmade = map[string]bool{}
	for _, rec := range r.index.all() {
		if !rec.Labels.StartedAt.IsZero() || rec.Labels.Exit != nil {
			if r.index.sandbox(rec.Labels.Key) == nil && r.index.sandboxByID(rec.Labels.SandboxID) == nil {
				r.teardown.discard(rec.ID)
			}
			continue
		}
		t, err := r.task(ctx, rec.ID)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", rec.ID, err)
		}
		switch statusOf(t) {
		case noTask:
			unmade[rec.ID] = true
			r.teardown.discard(rec.ID)
		case task.Status_STOPPED:
			r.teardown.discard(rec.ID)
		}
	}
	return unmade, nil
}

// cleanLeases ends the leases of an agent that was killed: they would keep what it was at work on for a day. A pull that
// was cut off goes on later with what has come of it. Those in
// a containerd that others use as well are left to expire.
func (r *Runtime) cleanLeases(ctx context.Context) error {
	if r.cfg.Endpoint != "" {
		return nil
	}
	all, err := r.client.LeasesService().List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if image.Resumable(l, time.Now()) {
			continue
		}
		errs = append(errs, ignoreNotFound(r.client.LeasesService().Delete(ctx, l)))
	}
	return errors.Join(errs...)
}

func (r *Runtime) cleanSnapshots(ctx context.Context) error {
	s := r.client.SnapshotService(r.cfg.Snapshotter)
	var gone []string
	err := s.Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		used := r.index.container(i.Name) != nil || i.Labels[labelImageVolume] != "" && r.index.sandboxByID(i.Labels[labelSandbox]) != nil
		if i.Labels[labelOwner] == r.cfg.RootDirectory && !used {
			gone = append(gone, i.Name)
		}
		return nil
	}, r.ownFilter())
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	var errs []error
	for _, name := range gone {
		errs = append(errs, ignoreNotFound(s.Remove(ctx, name)))
	}
	return errors.Join(errs...)
}

// cleanNamespaces unpins namespaces without a sandbox, with a DEL before: their ADD may have run.
func (r *Runtime) cleanNamespaces(ctx context.Context) error {
	var errs []error
	for _, id := range names(r.path("ns")) {
		if r.index.sandboxByID(id) != nil {
			continue
		}
		dir := r.nsDir(id)
		if network.Pinned(dir, network.Namespaces{Net: true}) {
			errs = append(errs, r.net.Teardown(ctx, network.Pod{SandboxID: id, NetNS: filepath.Join(dir, "net")}))
		}
		errs = append(errs, network.Unpin(dir))
	}
	return errors.Join(errs...)
}

// cleanPauses ends process namespaces without a sandbox.
func (r *Runtime) cleanPauses(ctx context.Context) error {
	var errs []error
	for _, id := range names(r.path("pause")) {
		if r.index.sandboxByID(id) == nil {
			errs = append(errs, r.stopPause(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// cleanFiles removes shm mounts without a sandbox, exit records and FIFOs without a container.
func (r *Runtime) cleanFiles(ctx context.Context) error {
	var errs []error
	for _, id := range names(r.path("shm")) {
		if r.index.sandboxByID(id) == nil {
			errs = append(errs, removeTree(r.shmDir(id)))
		}
	}
	for _, id := range names(r.path("image-volumes")) {
		if r.index.sandboxByID(id) == nil {
			errs = append(errs, removeTree(r.path("image-volumes", id)))
		}
	}
	for _, id := range names(r.path("subpaths")) {
		errs = append(errs, volumes.Unbind(r.subPathDir(id))) // nothing is being created yet
	}
	for _, name := range names(r.path("exits")) {
		if r.index.container(strings.TrimSuffix(name, ".json")) == nil {
			errs = append(errs, removeFile(r.path("exits", name)))
		}
	}
	for _, id := range names(r.path("logs")) {
		if r.index.container(id) == nil {
			flush, cancel := context.WithTimeout(ctx, logFlushTimeout)
			errs = append(errs, r.logs.Finish(flush, id))
			cancel()
		}
	}
	return errors.Join(errs...)
}

// cleanTemps removes temporary files of processes that were killed while they wrote them. Other parts of the agent, and
// shims, may be writing now.
func (r *Runtime) cleanTemps(now time.Time) error {
	errs := []error{
		atomicfile.SweepOld(r.path("exits"), now, "."),
		atomicfile.SweepOld(r.path("pause"), now, ".output-"), // of earlier versions
		atomicfile.SweepOld(r.cfg.Network.OwnConfDir, now, atomicfile.TempPrefix),
		atomicfile.SweepOld(r.contentDir(), now, image.TempPrefix),
	}
	for _, top := range []string{r.cfg.RootDirectory, r.cfg.StateDirectory} {
		errs = append(errs, atomicfile.SweepOld(top, now, atomicfile.TempPrefix))
		for _, name := range names(top) {
			errs = append(errs, atomicfile.SweepOld(filepath.Join(top, name), now, atomicfile.TempPrefix))
		}
	}
	return errors.Join(errs...)
}

// cleanPods removes directories, logs and cgroups of pods without a sandbox.
func (r *Runtime) cleanPods(ctx context.Context) error {
	known := map[string]bool{}
	for _, rec := range r.index.list() {
		known[rec.Labels.UID] = true
	}
	for _, rec := range r.index.all() {
		known[rec.Labels.UID] = true // the teardown has them on its list
	}
	var errs []error
	for _, uid := range names(r.podsDir()) {
		if known[uid] {
			continue
		}
		// The log directory may be shared with a kubelet: only the uid says that one is ours.
		for _, name := range names(r.cfg.PodLogsDir) {
			if strings.HasSuffix(name, "_"+uid) {
				errs = append(errs, removeTree(filepath.Join(r.cfg.PodLogsDir, name)))
			}
		}
		errs = append(errs, r.removePodDir(uid))
	}
	errs = append(errs, r.cleanSecrets(known), r.claims.Clean(func(uid string) bool { return known[uid] }))
	for _, uid := range names(r.podsDir()) {
		errs = append(errs, r.cleanMessages(uid))
		for _, id := range names(r.imageVolumeDir(uid, "")) {
			if r.index.container(id) == nil {
				errs = append(errs, removeTree(r.imageVolumeDir(uid, id)))
			}
		}
	}
	return errors.Join(append(errs, r.cleanCgroups())...)
}

// names lists a directory, hidden entries left out; one that cannot be read is empty.
func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}
