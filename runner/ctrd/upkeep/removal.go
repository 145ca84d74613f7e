// Package upkeep tears down sandboxes and containers, removes leftovers at startup, and frees disk space on request. It must only
// touch what carries our labels or lies in our directories, and must not decide what is removed.
//
// Goroutines: Queue.Run has one for each removal in progress.
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
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/taskwatch"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/volume"
)

// Remover tears down sandboxes, containers that could not be created, and directories of claims.
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
	ClaimVolumes *volume.Storage
	PodCgroups   *cgroup.Pods
	Watch        *taskwatch.Watchers
	Log          *slog.Logger

	Teardown *Queue
	followed atomic.Pointer[followed]
	// locks has one lock for each sandbox.
	locks locks.ByKey
}

// FollowObjects stores the current set of objects. It removes directories of deleted claims whose class has the reclaim policy
// Delete; removable reports whether an object that is missing at its origin was really deleted.
func (r *Remover) FollowObjects(objects *manifests.Objects, removable func(manifests.Origin) bool) {
	r.followed.Store(&followed{objects, removable})
	r.reclaim()
}

// followed is the latest argument of FollowObjects.
type followed struct {
	objects   *manifests.Objects
	removable func(manifests.Origin) bool
}

// reclaim queues the removal of directories of deleted claims.
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

// Removals returns the removals that are slow or have failed, except those of pods that are being recreated.
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

// GiveUp queues the teardown of a sandbox.
func (r *Remover) GiveUp(id string) {
	r.Teardown.put(id, func(ctx context.Context) error { return r.teardownSandbox(ctx, id) })
}

// removeClaim queues the removal of the directory of a claim.
func (r *Remover) removeClaim(claim string) {
	r.Teardown.put("claim "+claim, func(context.Context) error { return r.ClaimVolumes.Claims.Remove(claim) })
}

// Discard queues the removal of a container.
func (r *Remover) Discard(id string) {
	r.Teardown.put(id, func(ctx context.Context) error { return r.Lifecycle.RemoveContainer(ctx, id) })
}

// FinishUID tears down earlier sandboxes with this uid now: a new one would share their directories.
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

// teardownSandbox tears down a sandbox. Its record is removed last; if the next sandbox of the pod is about to be created, the
// record stays until that exists, so that the next agent knows. Every step is idempotent.
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
	if err := r.Records.IDRanges.Release(id); err != nil {
		r.Log.Warn("other monopods cannot assign the user ids of a removed pod yet", "sandbox", id, "err", err)
	}
	r.Watch.Notify(rec.Meta.Key)
	r.tellFreed()
	return nil
}

// tellFreed wakes pods that may wait for what was freed.
func (r *Remover) tellFreed() {
	if r.ClaimVolumes.Freed.Swap(false) {
		r.reclaim()
		r.Watch.Notify(manifests.Key{})
	}
}

// takeApart removes all of a sandbox except its record.
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
	if err := errors.Join(linuxns.Unpin(r.Dirs.NsDir(rec.ID)), r.ImageVolumes.DropImageVolumes(ctx, rec.ID)); err != nil || rec.Meta.KeepFiles {
		return errors.Join(err, trees.Remove(r.Dirs.ShmDir(rec.ID)))
	}
	return r.removePodDirs(ctx, rec)
}

// removePodDirs removes the sandbox's shm, and what belongs to the uid unless another sandbox has it now. Logs stay as long as the
// pod has containers.
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
