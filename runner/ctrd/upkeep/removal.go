// Package upkeep takes apart what was given up, removes at startup what an earlier run left, and makes room on the disk when asked. It must
// only touch what carries our labels or lies in our directories, and does not decide what is given up.
//
// Goroutines: Queue.Run has one for each removal under way.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"

	"monopod/manifests"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/taskwatch"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/volume"
)

// Remover takes apart sandboxes that were given up, containers that came to nothing and directories of claims.
type Remover struct {
	Client       *client.Client
	Records      *record.Store
	Index        *record.Index
	Dirs         layout.Dirs
	Lifecycle    *container.Lifecycle
	Pauses       *sandbox.Pauses
	Net          *network.Network
	Network      *sandbox.Network
	ImageVolumes *volume.Images
	ClaimVolumes *volume.Claims
	PodCgroups   *cgroup.Pods
	Watch        *taskwatch.Watchers
	Log          *slog.Logger

	Teardown *Queue
	followed atomic.Pointer[followed]
	// locks has one lock for each sandbox.
	locks locks.ByKey
}

// FollowObjects takes notice of all documents there are. Directories of claims that are gone, and whose class says so, are
// removed; removable says whether what was written at a place, and is not there now, is really gone.
func (r *Remover) FollowObjects(objects *manifests.Objects, removable func(manifests.Origin) bool) {
	r.followed.Store(&followed{objects, removable})
	r.reclaim()
}

// followed is the latest that FollowObjects was told.
type followed struct {
	objects   *manifests.Objects
	removable func(manifests.Origin) bool
}

// reclaim queues the removal of directories that nobody wants any more.
func (r *Remover) reclaim() {
	f := r.followed.Load()
	if f == nil {
		return
	}
	gone, err := r.ClaimVolumes.Claims.Follow(f.objects, f.removable)
	if err != nil {
		r.Log.Warn("record the volumes of claims", "err", err)
	}
	for _, claim := range gone {
		r.removeClaim(claim)
	}
}

// Removals returns the removals that take time or have failed. A pod that is made again, or was already, is not among them.
func (r *Remover) Removals() []Removal {
	var all []Removal
	for _, rec := range r.Index.List() {
		if rec.Meta.State == record.Active || rec.Apart || rec.Pod == nil || r.Index.Sandbox(rec.Meta.Key) != nil {
			continue
		}
		m, ok := r.Teardown.removal(rec.ID)
		if ok && (m.Failed > 0 || time.Since(m.Since) > unremarkable) {
			m.Pod, m.UID = rec.Pod, rec.Meta.UID
			all = append(all, m)
		}
	}
	return all
}

// GiveUp queues a sandbox.
func (r *Remover) GiveUp(id string) {
	r.Teardown.put(id, func(ctx context.Context) error { return r.teardownSandbox(ctx, id) })
}

// removeClaim queues the directory of a claim.
func (r *Remover) removeClaim(claim string) {
	r.Teardown.put("claim "+claim, func(context.Context) error { return r.ClaimVolumes.Claims.Remove(claim) })
}

// Discard queues a container.
func (r *Remover) Discard(id string) {
	r.Teardown.put(id, func(ctx context.Context) error { return r.Lifecycle.RemoveContainer(ctx, id) })
}

// FinishUID takes apart now what is left of earlier sandboxes with this uid: a new one would share their directories.
func (r *Remover) FinishUID(ctx context.Context, uid string) error {
	for _, rec := range r.Index.List() {
		if rec.Meta.UID != uid || rec.Meta.State == record.Active {
			continue
		}
		if err := r.teardownSandbox(ctx, rec.ID); err != nil {
			return err
		}
	}
	return nil
}

// teardownSandbox takes a given-up sandbox apart; its record goes last, and stays if the next sandbox of the pod is about to be made: it
// tells the next agent so, and goes when that is there. Every step is idempotent.
func (r *Remover) teardownSandbox(ctx context.Context, id string) error {
	defer r.locks.Lock(id)()
	rec := r.Index.SandboxByID(id)
	if rec == nil {
		return nil
	}
	if !rec.Apart {
		if err := r.takeApart(ctx, rec); err != nil {
			return err
		}
	}
	if r.Records.KeepRecord(id) {
		r.tellFreed()
		return nil
	}
	if err := fault.IgnoreNotFound(r.Client.SandboxStore().Delete(ctx, id)); err != nil {
		return fmt.Errorf("delete record of sandbox %s: %w", id, err)
	}
	r.Index.DeleteSandbox(id)
	r.Records.IDRanges.Release(id)
	r.Watch.Notify(rec.Meta.Key)
	r.tellFreed()
	return nil
}

// tellFreed has what others may wait for given to them.
func (r *Remover) tellFreed() {
	if r.ClaimVolumes.Freed.Swap(false) {
		r.reclaim()
		r.Watch.Notify(manifests.Key{})
	}
}

// takeApart removes all of a sandbox but its record.
func (r *Remover) takeApart(ctx context.Context, rec *record.Sandbox) error {
	r.Network.Adds.Forget(rec.ID)
	for _, c := range r.Index.OfSandbox(rec.ID) {
		if c.Meta.Exit != nil {
			continue // the record of a completed container may outlive its sandbox
		}
		if err := r.Lifecycle.RemoveContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	if err := r.Pauses.StopPause(ctx, rec.ID); err != nil {
		return err
	}
	if sandbox.NamespacesOf(rec.Pod.Object).Net {
		if err := r.Network.TeardownNetwork(ctx, rec); err != nil {
			return err
		}
	} else if err := r.Net.Unclaim(rec.ID); err != nil {
		return err
	}
	if err := errors.Join(network.Unpin(r.Dirs.NsDir(rec.ID)), r.ImageVolumes.DropImageVolumes(ctx, rec.ID)); err != nil || rec.Meta.KeepFiles {
		return errors.Join(err, trees.Remove(r.Dirs.ShmDir(rec.ID)))
	}
	return r.removePodDirs(ctx, rec)
}

// removePodDirs removes the sandbox's shm and what belongs to the uid rather than the sandbox, unless another sandbox has taken
// that over. Logs stay as long as there are containers to ask for them.
func (r *Remover) removePodDirs(ctx context.Context, rec *record.Sandbox) error {
	uid, dirs := rec.Meta.UID, []string{r.Dirs.ShmDir(rec.ID)}
	err := r.PodCgroups.RemovePodCgroup(ctx, rec)
	if r.Index.UIDInUse(uid, rec.ID) {
		return errors.Join(err, trees.Remove(dirs...))
	}
	dirs = append(dirs, r.Dirs.FilesDir(uid))
	if len(r.Index.OfUID(uid)) == 0 {
		dirs = append(dirs, r.Dirs.PodLogDir(rec.Meta.Key, uid))
	}
	return errors.Join(err, r.ClaimVolumes.RemovePodDir(uid, dirs...))
}
