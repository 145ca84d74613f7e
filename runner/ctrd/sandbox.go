package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/internal/regular"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/podfiles"
	"monopod/runner/spec"
)

// namespacesOf says which namespaces the containers of a pod share, apart from hostname and sysctls.
func namespacesOf(pod *corev1.Pod) network.Namespaces {
	return network.Namespaces{
		Net: !pod.Spec.HostNetwork,
		UTS: !pod.Spec.HostNetwork,
		IPC: !pod.Spec.HostIPC,
	}
}

// createSandbox makes record, namespaces, files and shm side by side, then starts to set up the network. Called again after it was
// cut off, it completes what is there.
func (r *Runtime) createSandbox(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if err := identifiers.Validate(a.UID); err != nil {
		return fmt.Errorf("uid: %w", err)
	}
	rec := r.index.sandbox(key)
	switch {
	case rec == nil:
		if err := r.teardown.finishUID(ctx, a.UID); err != nil {
			return fmt.Errorf("what is left of the pod's previous sandbox: %w", err)
		}
		var err error
		if rec, err = r.newSandbox(ctx, key, pod, a); err != nil {
			return err
		}
	case rec.Labels.BootID != r.bootID:
		return fmt.Errorf("pod %s has sandbox %s of an earlier boot, which must be removed first", key, rec.ID)
	}
	var g errgroup.Group
	g.Go(func() error { return r.storeSandbox(ctx, rec) })
	g.Go(func() error { return r.prepareSandbox(ctx, rec) })
	g.Go(func() error { return r.preparePodCgroup(rec) })
	err := g.Wait()
	if err == nil {
		err = r.claimHostPorts(rec)
	}
	if err != nil {
		r.dropSandbox(ctx, rec)
		return err
	}
	r.index.putSandbox(rec)
	r.usage.limited(pod)
	if !rec.Network.Ready {
		r.startNetwork(ctx, rec)
	}
	// Not before it is in the index: of pods that are made at the same time each must count the others.
	if err := r.weighClassOf(rec); err != nil {
		r.dropSandbox(ctx, rec)
		return err
	}
	if err := r.dropPlaces(ctx, key); err != nil {
		r.log.Warn("the record of the pod's previous sandbox stays for now", "pod", key.String(), "err", err)
	}
	return nil
}

// reviveSandbox makes what a reboot took from a sandbox: its cgroup, namespaces, shm, files, network. That it is of this
// boot is recorded first: should this be cut off, it is still not alive without its namespaces, which come after the
// cgroup, and done again. Volumes are prepared with the containers; those in memory are new.
func (r *Runtime) reviveSandbox(ctx context.Context, key manifests.Key, pod *manifests.Pod) error {
	rec := r.index.sandbox(key)
	if rec == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	if r.alive(rec) {
		return nil
	}
	if rec.Labels.Hash != podhash.Sandbox(pod.Object) {
		return fmt.Errorf("pod %s needs another sandbox than %s", key, rec.ID)
	}
	r.adds.forget(rec.ID)
	rec, err := r.updateSandbox(ctx, rec.ID, func(s *sandboxRecord) {
		s.Pod = pod
		s.Labels.Source = pod.Origin.Source
		s.Labels.BootID, s.Labels.Born = r.bootID, boottime.Since()
		s.Network = networkResult{Ready: pod.Object.Spec.HostNetwork}
	}, "extensions."+extPod, "extensions."+extOrigin, "extensions."+extNetwork, "labels."+labelSource, "labels."+labelBootID, "labels."+labelBorn)
	if err != nil {
		return err
	}
	r.usage.limited(pod)
	if err := r.preparePodCgroup(rec); err != nil {
		return err
	}
	if err := r.weighClassOf(rec); err != nil {
		return err
	}
	if err := r.removeFormerFiles(rec.Labels.UID); err != nil {
		return err
	}
	if err := r.prepareSandbox(ctx, rec); err != nil {
		return err
	}
	if err := r.claimHostPorts(rec); err != nil {
		return err
	}
	if !rec.Network.Ready {
		r.repeatNetwork(ctx, rec) // the addresses it had are still booked
	}
	return nil
}

func (r *Runtime) newSandbox(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) (*sandboxRecord, error) {
	class, err := r.checkRuntime(ctx, pod)
	if err != nil {
		return nil, err
	}
	rec := &sandboxRecord{
		ID:        newID(),
		CreatedAt: time.Now(),
		Pod:       pod,
		Network:   networkResult{Ready: pod.Object.Spec.HostNetwork},
		Labels: sandboxLabels{
			Owner:  r.cfg.RootDirectory,
			Key:    key,
			UID:    a.UID,
			Source: pod.Origin.Source,
			Hash:   podhash.Sandbox(pod.Object),
			State:  sandboxActive,
			BootID: r.bootID,
			Born:   boottime.Since(),

			Evictions: a.Evictions,

			Cgroup:        r.cgroups.Pod(manifests.QOSClass(pod.Object), a.UID),
			QOSClass:      manifests.QOSClass(pod.Object),
			ResourcesHash: podhash.PodResources(pod.Object),

			Handler:  class.Handler,
			Overhead: class.Overhead,
		},
	}
	if !ownUsers(pod.Object) {
		return rec, nil
	}
	rec.Labels.FirstID, err = r.ids.take(rec.ID, foreignRanges())
	return rec, err
}

// storeSandbox writes a new record; one that exists is fine.
func (r *Runtime) storeSandbox(ctx context.Context, rec *sandboxRecord) error {
	ext, err := rec.extensions()
	if err != nil {
		return err
	}
	created, err := r.client.SandboxStore().Create(ctx, sandbox.Sandbox{
		ID:         rec.ID,
		Labels:     rec.Labels.encode(),
		Extensions: ext,
		Runtime:    sandbox.RuntimeOpts{Name: r.cfg.ShimPath},
	})
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create sandbox record: %w", err)
	}
	rec.CreatedAt = created.CreatedAt
	return nil
}

// dropSandbox undoes a createSandbox that failed: the teardown does it, as for any other sandbox.
func (r *Runtime) dropSandbox(ctx context.Context, rec *sandboxRecord) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := r.markRemoving(ctx, rec, runner.Action{}); err != nil {
		r.log.Warn("give up sandbox", "sandbox", rec.ID, "err", err)
	}
}

// prepareSandbox makes namespaces, shm and files. It is idempotent.
func (r *Runtime) prepareSandbox(ctx context.Context, rec *sandboxRecord) error {
	pod := rec.Pod.Object
	ns := namespacesOf(pod)
	if ns.UTS {
		name, err := spec.Hostname(pod, r.cfg.NodeName, r.cfg.ClusterDomain)
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
	if rec.Labels.FirstID > 0 {
		ns.Users = &network.Users{FirstID: rec.Labels.FirstID, Count: spec.UserIDs}
	}
	if err := network.Pin(r.nsDir(rec.ID), ns); err != nil {
		return err
	}
	if !pod.Spec.HostIPC {
		// Made for the ids of the pod, it needs no mapping.
		options := fmt.Sprintf("mode=1777,size=67108864,uid=%d,gid=%[1]d", rec.Labels.FirstID)
		if err := mountTmpfs(r.shmDir(rec.ID), options, shmFlags); err != nil {
			return fmt.Errorf("shm: %w", err)
		}
	}
	if err := r.writeFiles(rec); err != nil {
		return err
	}
	if sharesProcesses(pod) {
		return r.startPause(ctx, rec)
	}
	return nil
}

// podFiles is where the files of a sandbox are that its containers see.
func (r *Runtime) podFiles(rec *sandboxRecord) podfiles.Dir {
	return podfiles.Dir{Path: r.podFilesDir(rec.Labels.UID), Owner: int(rec.Labels.FirstID)}
}

func (r *Runtime) podFilesDir(uid string) string { return filepath.Join(r.podDir(uid), "files") }

func (r *Runtime) writeFiles(rec *sandboxRecord) error {
	if err := os.MkdirAll(r.podDir(rec.Labels.UID), 0o750); err != nil {
		return err
	}
	f, warnings, err := r.fileTexts(rec)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		r.log.Warn(w, "pod", rec.Labels.Key.String())
	}
	return r.podFiles(rec).Write(f)
}

// fileTexts are what the files say, and warnings about what had to be left out.
func (r *Runtime) fileTexts(rec *sandboxRecord) (f podfiles.Files, warnings []string, err error) {
	name, err := spec.Hostname(rec.Pod.Object, r.cfg.NodeName, r.cfg.ClusterDomain)
	if err != nil {
		return f, nil, err
	}
	f.Hostname = name + "\n"
	f.ResolvConf, warnings = spec.ResolvConf(spec.DNS{
		Pod:           rec.Pod.Object,
		HostFile:      r.hostResolvConf(),
		ClusterDNS:    r.clusterDNS(),
		ClusterDomain: r.cfg.ClusterDomain,
		NodeIPs:       r.cfg.NodeIPs(),
	})
	f.Hosts, err = r.hostsText(rec)
	return f, warnings, err
}

// clusterDNS returns the resolvers of pods with dnsPolicy ClusterFirst.
func (r *Runtime) clusterDNS() []string {
	if len(r.cfg.ClusterDNS) > 0 || r.cfg.Resolver == nil {
		return r.cfg.ClusterDNS
	}
	return r.cfg.Resolver()
}

// maxHostFile is more than the machine's own /etc/hosts and resolv.conf have; each pod gets what is in them.
const maxHostFile = 4 << 20

// hostResolvConf returns the host's resolver file; nil when the configuration says that there is none.
func (r *Runtime) hostResolvConf() *string {
	if r.cfg.ResolvConf == "" {
		return nil
	}
	b, err := regular.ReadFile(r.cfg.ResolvConf, maxHostFile)
	if err != nil {
		r.log.Warn("read the host's resolver configuration", "err", err)
	}
	text := string(b)
	return &text
}

// writeHosts writes /etc/hosts in place: containers have the file bind-mounted. Pods of earlier versions may have
// both files: one on disk, which containers have that were made by it, and a new one. Where the agent was killed before all files
// of a new pod were there, the rest is made.
func (r *Runtime) writeHosts(rec *sandboxRecord) error {
	f, _, err := r.fileTexts(rec)
	if err != nil {
		return err
	}
	former := r.formerHosts(rec.Labels.UID)
	_, noFormer := os.Lstat(former)
	if noFormer == nil {
		if err := podfiles.WriteInPlace(former, f.Hosts); err != nil {
			return err
		}
	}
	err = r.podFiles(rec).WriteHosts(f)
	switch {
	case !errors.Is(err, os.ErrNotExist):
		return err
	case noFormer == nil:
		return nil
	}
	return r.writeFiles(rec)
}

// formerHosts is where /etc/hosts of a pod was in earlier versions.
func (r *Runtime) formerHosts(uid string) string { return filepath.Join(r.podDir(uid), "etc-hosts") }

// removeFormerFiles removes the files of earlier versions. No container of the pod must run.
func (r *Runtime) removeFormerFiles(uid string) error {
	errs := []error{removeFile(r.formerHosts(uid))}
	for _, name := range []string{"hostname", "resolv.conf"} {
		errs = append(errs, removeFile(filepath.Join(r.podDir(uid), name)))
	}
	return errors.Join(errs...)
}

// hostsText is what /etc/hosts says.
func (r *Runtime) hostsText(rec *sandboxRecord) (string, error) {
	var node []byte
	if rec.Pod.Object.Spec.HostNetwork {
		var err error
		if node, err = regular.ReadFile("/etc/hosts", maxHostFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return spec.HostsFile(spec.Hosts{
		Pod:           rec.Pod.Object,
		IPs:           rec.Network.IPs,
		ClusterDomain: r.cfg.ClusterDomain,
		NodeFile:      string(node),
	})
}

// recordPod stores another manifest on the record.
func (r *Runtime) recordPod(ctx context.Context, key manifests.Key, pod *manifests.Pod) error {
	rec := r.index.sandbox(key)
	if rec == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	defer r.usage.limited(pod)
	before := bandwidthOf(rec.Pod)
	next, err := r.updateSandbox(ctx, rec.ID, func(s *sandboxRecord) {
		s.Pod = pod
		s.Labels.Source = pod.Origin.Source
	}, "extensions."+extPod, "extensions."+extOrigin, "labels."+labelSource)
	if err != nil {
		return err
	}
	if before != bandwidthOf(pod) && next.Network.Ready && !pod.Object.Spec.HostNetwork {
		if err := r.net.Shape(r.networkPod(next)); err != nil {
			return err
		}
	}
	return r.writeHosts(next) // hostAliases may be among what changed
}

// failPod puts on the record that the pod has failed.
func (r *Runtime) failPod(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.index.sandbox(key)
	if rec == nil || rec.Labels.Failed != "" {
		return nil
	}
	_, err := r.updateSandbox(ctx, rec.ID, func(s *sandboxRecord) {
		s.Labels.Failed, s.Labels.FailedMessage, s.Labels.FailedAt = a.Failure, a.Message, time.Now().UTC().Round(0)
		s.Labels.FailedCause = a.FailureCause
	}, "labels."+labelFailed, "labels."+labelFailedAt, "labels."+labelFailedMsg, "labels."+labelFailedCause)
	return err
}

// updateSandbox changes fields of a record in containerd, then in the index. The worker and a network set-up may
// do so at the same time.
func (r *Runtime) updateSandbox(ctx context.Context, id string, change func(*sandboxRecord), fields ...string) (*sandboxRecord, error) {
	defer r.locks.lock("record " + id)()
	rec := r.index.sandboxByID(id)
	if rec == nil {
		return nil, fmt.Errorf("sandbox %s: %w", id, errdefs.ErrNotFound)
	}
	next := *rec
	change(&next)
	ext, err := next.extensions()
	if err != nil {
		return nil, err
	}
	_, err = r.client.SandboxStore().Update(ctx, sandbox.Sandbox{ID: id, Labels: next.Labels.encode(), Extensions: ext}, fields...)
	if err != nil {
		return nil, fmt.Errorf("update sandbox record: %w", err)
	}
	r.index.putSandbox(&next)
	return &next, nil
}

// removeSandbox gives the sandbox up; the teardown does the rest.
func (r *Runtime) removeSandbox(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.index.sandbox(key)
	if rec == nil {
		return r.dropPlaces(ctx, key)
	}
	return r.markRemoving(ctx, rec, a)
}

// dropPlaces has the records of sandboxes go that have stayed for the next one.
func (r *Runtime) dropPlaces(ctx context.Context, key manifests.Key) error {
	var errs []error
	for _, rec := range r.index.list() {
		if rec.Labels.Key != key || rec.Labels.State != sandboxRemoving || !rec.Labels.Remade {
			continue
		}
		_, err := r.updateSandbox(ctx, rec.ID, func(s *sandboxRecord) { s.Labels.Remade, s.Apart = false, false }, "labels."+labelRemade)
		if errs = append(errs, ignoreNotFound(err)); err == nil {
			r.teardown.add(rec.ID)
		}
	}
	return errors.Join(errs...)
}

// markRemoving makes a sandbox, whose record may not exist yet, one that is being removed, and notes what the removal has to leave.
func (r *Runtime) markRemoving(ctx context.Context, rec *sandboxRecord, a runner.Action) error {
	mark := func(s *sandboxRecord) {
		s.Labels.State, s.Labels.KeepFiles, s.Labels.Remade = sandboxRemoving, a.KeepFiles, a.Remade
	}
	fields := []string{"labels." + labelState}
	if a.KeepFiles {
		fields = append(fields, "labels."+labelKeepFiles)
	}
	if a.Remade {
		fields = append(fields, "labels."+labelRemade)
	}
	_, err := r.updateSandbox(ctx, rec.ID, mark, fields...)
	if errdefs.IsNotFound(err) {
		next := *rec
		mark(&next)
		r.index.putSandbox(&next)
		err = nil
	}
	if err != nil {
		return err
	}
	r.adds.cancel(rec.ID)
	r.teardown.add(rec.ID)
	return nil
}
