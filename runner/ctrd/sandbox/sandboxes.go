// Package sandbox owns what the containers of a pod share: its record, namespaces, process 1, network and files such as
// /etc/hosts. It must not create containers, or tear sandboxes down, which package upkeep does.
//
// Goroutines: one for each network that is being set up; Setups.Wait waits for them.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"

	"monopod/internal/boottime"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/usage"
	"monopod/runner/spec/etcfiles"
	"monopod/runner/spec/limits"
)

// remover tears down sandboxes: in the background, or at once those that had a uid.
type remover interface {
	GiveUp(id string)
	FinishUID(ctx context.Context, uid string) error
}

// Manager creates, revives, updates and gives up the sandboxes of pods.
type Manager struct {
	Records       *record.Store
	Index         *record.Index
	Dirs          layout.Dirs
	Files         *Files
	Pauses        *Pauses
	Net           *network.Network
	Network       *Network
	PodCgroups    *cgroup.Pods
	OCI           *oci.Runtimes
	Meter         *usage.Meter
	Removal       remover
	NodeName      string
	ClusterDomain string
	BootID        string
	Log           *slog.Logger
}

// CreateSandbox creates record, namespaces, files and shm in parallel, then starts to set up the network. Called again after an
// interruption, it completes the sandbox.
func (r *Manager) CreateSandbox(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if err := identifiers.Validate(a.UID); err != nil {
		return fmt.Errorf("uid: %w", err)
	}
	rec := r.Index.Sandbox(key)
	switch {
	case rec == nil:
		if err := r.Removal.FinishUID(ctx, a.UID); err != nil {
			return fmt.Errorf("clean up the pod's previous sandbox: %w", err)
		}
		var err error
		if rec, err = r.NewSandbox(ctx, key, pod, a); err != nil {
			return err
		}
	case rec.Meta.BootID != r.BootID:
		return fmt.Errorf("pod %s has sandbox %s of an earlier boot, which must be removed first", key, rec.ID)
	}
	var g errgroup.Group
	g.Go(func() error { return r.Records.StoreSandbox(ctx, rec) })
	g.Go(func() error { return r.PrepareSandbox(ctx, rec) })
	g.Go(func() error { return r.PodCgroups.PreparePodCgroup(rec) })
	err := g.Wait()
	if err == nil {
		err = r.Network.claimHostPorts(rec)
	}
	if err != nil {
		r.DropSandbox(ctx, rec)
		return err
	}
	r.Index.PutSandbox(rec)
	r.Meter.Usage.Limited(pod)
	if !rec.Network.Ready {
		r.Network.startNetwork(ctx, rec)
	}
	// Only after it is in the index: pods that are created at the same time must count each other.
	if err := r.PodCgroups.WeighClassOf(rec); err != nil {
		r.DropSandbox(ctx, rec)
		return err
	}
	if err := r.dropPlaces(ctx, key); err != nil {
		r.Log.Warn("delete the record of the pod's previous sandbox", "pod", key.String(), "err", err)
	}
	return nil
}

// ReviveSandbox creates again what a sandbox lost in a reboot: its cgroup, namespaces, shm, files and network. The new boot is
// recorded first: if the call is interrupted, the sandbox is still not alive, because its namespaces come after the cgroup, and
// the call is repeated. Volumes are prepared with the containers; those in memory are empty.
func (r *Manager) ReviveSandbox(ctx context.Context, key manifests.Key, pod *manifests.Pod) error {
	rec := r.Index.Sandbox(key)
	if rec == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	if r.alive(rec) {
		return nil
	}
	if rec.Meta.Hash != podhash.Sandbox(pod.Object) {
		return fmt.Errorf("pod %s needs another sandbox than %s", key, rec.ID)
	}
	r.Network.Adds.Forget(rec.ID)
	rec, err := r.Records.UpdateSandbox(ctx, rec.ID, func(s *record.Sandbox) {
		s.Pod = pod
		s.Meta.Source = pod.Origin.Source
		s.Meta.BootID, s.Meta.Born = r.BootID, boottime.Since()
		s.Network = record.NetworkResult{Ready: pod.Object.Spec.HostNetwork}
	}, record.ExtSandbox, record.ExtPod, record.ExtOrigin, record.ExtNetwork)
	if err != nil {
		return err
	}
	r.Meter.Usage.Limited(pod)
	if err := r.PodCgroups.PreparePodCgroup(rec); err != nil {
		return err
	}
	if err := r.PodCgroups.WeighClassOf(rec); err != nil {
		return err
	}
	if err := r.PrepareSandbox(ctx, rec); err != nil {
		return err
	}
	if err := r.Network.claimHostPorts(rec); err != nil {
		return err
	}
	if !rec.Network.Ready {
		r.Network.repeatNetwork(ctx, rec) // its addresses are still reserved
	}
	return nil
}

// NewSandbox returns the record of a new sandbox, which is not stored yet.
func (r *Manager) NewSandbox(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) (*record.Sandbox, error) {
	class, err := r.OCI.CheckRuntime(ctx, pod)
	if err != nil {
		return nil, err
	}
	rec := &record.Sandbox{
		ID:        record.NewID(),
		CreatedAt: time.Now(),
		Pod:       pod,
		Network:   record.NetworkResult{Ready: pod.Object.Spec.HostNetwork},
		Meta: record.SandboxMeta{
			Owner:  r.Dirs.Root,
			Key:    key,
			UID:    a.UID,
			Source: pod.Origin.Source,
			Hash:   podhash.Sandbox(pod.Object),
			State:  record.Active,
			BootID: r.BootID,
			Born:   boottime.Since(),

			Evictions: a.Evictions,

			Cgroup:        r.PodCgroups.Cgroups.Pod(manifests.QOSClass(pod.Object), a.UID),
			QOSClass:      manifests.QOSClass(pod.Object),
			ResourcesHash: podhash.PodResources(pod.Object),

			Handler:  class.Handler,
			Overhead: class.Overhead,
		},
	}
	rec.Meta.Resources = limits.InEffect(rec.Loaded(pod), r.PodCgroups.Host)
	if !idrange.Wanted(pod.Object) {
		return rec, nil
	}
	rec.Meta.FirstID, err = r.Records.IDRanges.Take(rec.ID, idrange.ForeignRanges())
	return rec, err
}

// giveUpTimeout bounds recording that a sandbox is removed.
const giveUpTimeout = 30 * time.Second

// DropSandbox tears down a sandbox whose creation failed, like any other sandbox.
func (r *Manager) DropSandbox(ctx context.Context, rec *record.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	if err := r.markRemoving(ctx, rec, runner.Action{}); err != nil {
		r.Log.Warn("remove sandbox", "sandbox", rec.ID, "err", err)
	}
}

// PrepareSandbox creates namespaces, shm and files. It is idempotent.
func (r *Manager) PrepareSandbox(ctx context.Context, rec *record.Sandbox) error {
	pod := rec.Pod.Object
	ns := NamespacesOf(pod)
	if ns.UTS {
		name, err := etcfiles.Hostname(pod, r.NodeName, r.ClusterDomain)
		if err != nil {
			return err
		}
		ns.Hostname = name
	}
	if s := pod.Spec.SecurityContext; s != nil {
		ns.Sysctls = map[string]string{}
		for _, c := range s.Sysctls {
			ns.Sysctls[c.Name] = c.Value
		}
	}
	if rec.Meta.FirstID > 0 {
		ns.Users = &linuxns.Users{FirstID: rec.Meta.FirstID, Count: manifests.UserIDs}
	}
	if err := linuxns.Pin(r.Dirs.NsDir(rec.ID), ns); err != nil {
		return err
	}
	if !pod.Spec.HostIPC {
		// It has the ids of the pod, so it needs no mapping.
		options := fmt.Sprintf("mode=1777,size=67108864,uid=%d,gid=%[1]d", rec.Meta.FirstID)
		if err := trees.MountTmpfs(r.Dirs.ShmDir(rec.ID), options, trees.ShmFlags); err != nil {
			return fmt.Errorf("shm: %w", err)
		}
	}
	if err := r.Files.writeFiles(rec); err != nil {
		return err
	}
	if sharesProcesses(pod) {
		return r.Pauses.startPause(ctx, rec)
	}
	return nil
}

// RecordPod stores a new manifest in the record.
func (r *Manager) RecordPod(ctx context.Context, key manifests.Key, pod *manifests.Pod) error {
	rec := r.Index.Sandbox(key)
	if rec == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	defer r.Meter.Usage.Limited(pod)
	before := bandwidthOf(rec.Pod)
	next, err := r.Records.UpdateSandbox(ctx, rec.ID, func(s *record.Sandbox) {
		s.Pod = pod
		s.Meta.Source = pod.Origin.Source
	}, record.ExtSandbox, record.ExtPod, record.ExtOrigin)
	if err != nil {
		return err
	}
	if before != bandwidthOf(pod) && next.Network.Ready && !pod.Object.Spec.HostNetwork {
		if err := r.Net.Limit(r.Network.networkPod(next)); err != nil {
			return err
		}
	}
	return r.Files.writeHosts(next) // hostAliases may have changed
}

// RecordEphemeral adds ephemeral containers to the record of a sandbox.
func (r *Manager) RecordEphemeral(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Index.Sandbox(key)
	if rec == nil || rec.Meta.UID != a.UID {
		return fmt.Errorf("pod %s with uid %s has no sandbox", key, a.UID)
	}
	_, err := r.Records.UpdateSandbox(ctx, rec.ID, func(s *record.Sandbox) {
		s.Ephemeral = runner.AddEphemeral(s.Ephemeral, a.Ephemeral)
	}, record.ExtEphemeral)
	return err
}

// FailPod records that the pod has failed.
func (r *Manager) FailPod(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Index.Sandbox(key)
	if rec == nil || rec.Meta.Failed != "" {
		return nil
	}
	_, err := r.Records.UpdateSandbox(ctx, rec.ID, func(s *record.Sandbox) {
		s.Meta.Failed, s.Meta.FailedMessage, s.Meta.FailedAt = a.Failure, a.Message, time.Now().UTC().Round(0)
		s.Meta.FailedCause = a.FailureCause
	}, record.ExtSandbox)
	return err
}

// RemoveSandbox marks the sandbox as removing; the teardown does the rest.
func (r *Manager) RemoveSandbox(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Index.Sandbox(key)
	if rec == nil {
		return r.dropPlaces(ctx, key)
	}
	return r.markRemoving(ctx, rec, a)
}

// dropPlaces removes the records that were kept for the next sandbox of a pod.
func (r *Manager) dropPlaces(ctx context.Context, key manifests.Key) error {
	var errs []error
	for _, rec := range r.Index.List() {
		if rec.Meta.Key != key || rec.Meta.State != record.Removing || !rec.Meta.Remade {
			continue
		}
		_, err := r.Records.UpdateSandbox(ctx, rec.ID, func(s *record.Sandbox) { s.Meta.Remade, s.Apart = false, false }, record.ExtSandbox)
		if errs = append(errs, fault.IgnoreNotFound(err)); err == nil {
			r.Removal.GiveUp(rec.ID)
		}
	}
	return errors.Join(errs...)
}

// markRemoving marks a sandbox, whose record may not exist yet, as removing, and records what its removal keeps.
func (r *Manager) markRemoving(ctx context.Context, rec *record.Sandbox, a runner.Action) error {
	mark := func(s *record.Sandbox) {
		s.Meta.State, s.Meta.KeepFiles, s.Meta.Remade = record.Removing, a.KeepFiles, a.Remade
	}
	_, err := r.Records.UpdateSandbox(ctx, rec.ID, mark, record.ExtSandbox)
	if errdefs.IsNotFound(err) {
		next := *rec
		mark(&next)
		r.Index.PutSandbox(&next)
		err = nil
	}
	if err != nil {
		return err
	}
	r.Network.Adds.cancel(rec.ID)
	r.Removal.GiveUp(rec.ID)
	return nil
}

// ResumeTeardowns queues the teardown of removing sandboxes, and of the older ones if a pod has two.
func (r *Manager) ResumeTeardowns(ctx context.Context) {
	for _, rec := range r.Index.List() {
		if rec.Meta.State == record.Active {
			if newest := r.Index.Sandbox(rec.Meta.Key); newest == nil || newest.ID == rec.ID {
				continue
			}
			if err := r.markRemoving(ctx, rec, runner.Action{}); err != nil {
				r.Log.Warn("remove a second sandbox", "sandbox", rec.ID, "err", err)
			}
			continue
		}
		r.Removal.GiveUp(rec.ID)
	}
}

// ObserveSandbox returns the state of a sandbox.
func (r *Manager) ObserveSandbox(rec *record.Sandbox) *runner.Sandbox {
	s := &runner.Sandbox{
		ID:   rec.ID,
		UID:  rec.Meta.UID,
		Hash: rec.Meta.Hash,

		QOSClass: rec.Meta.QOSClass, ResourcesHash: rec.Meta.ResourcesHash, Resources: rec.Meta.Resources,

		Pod:       rec.Pod,
		CreatedAt: rec.CreatedAt,
		Alive:     r.alive(rec),
		Network:   runner.NetworkPending,
		IPs:       rec.Network.IPs,
		Ephemeral: rec.Ephemeral,
	}
	if rec.Network.Ready {
		s.Network = runner.NetworkReady
	}
	if rec.Pod.Object.Spec.ActiveDeadlineSeconds != nil && rec.Meta.BootID == r.BootID {
		s.Age = max(0, boottime.Since()-rec.Meta.Born)
	}
	if rec.Meta.Failed != "" {
		s.Failed = &runner.PodFailure{Reason: rec.Meta.Failed, Message: rec.Meta.FailedMessage, Cause: rec.Meta.FailedCause, At: rec.Meta.FailedAt}
	}
	s.Evictions, s.Disk = rec.Meta.Evictions, r.Meter.Usage.Of(rec.ID)
	return s
}

// alive reports whether the sandbox was created in this boot and all that it shares exists.
func (r *Manager) alive(rec *record.Sandbox) bool {
	return rec.Meta.BootID == r.BootID &&
		linuxns.Pinned(r.Dirs.NsDir(rec.ID), NamespacesOf(rec.Pod.Object)) &&
		(rec.Meta.FirstID == 0 || linuxns.Pinned(r.Dirs.NsDir(rec.ID), linuxns.Set{Users: &linuxns.Users{}})) &&
		(!sharesProcesses(rec.Pod.Object) || r.Pauses.pauseAlive(rec.ID)) &&
		(rec.Pod.Object.Spec.HostIPC || trees.IsMountPoint(r.Dirs.ShmDir(rec.ID)))
}
