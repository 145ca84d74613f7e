package ctrd

import (
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/confine"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/device"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/process"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/upkeep"
	"monopod/runner/ctrd/usage"
	"monopod/runner/ctrd/volume"
	"monopod/runner/spec"
)

// assemble creates the parts, leaves first. What Open has opened is already in r.
func (r *Runtime) assemble(m host) {
	cfg := &r.cfg
	facts := func() spec.Host {
		h := m.host
		h.NodeIPs = cfg.NodeIPs()
		return h
	}
	work := locks.NewSlots(cfg.MaxConcurrent)
	r.records = &record.Store{Client: r.client, Dirs: r.dirs, Index: r.index, ShimPath: cfg.ShimPath, Log: r.log}
	r.records.IDRanges.Claims = idrange.Claims{Dir: cfg.IDRangesDir, Owner: r.dirs.Root}
	r.podCgroups = &cgroup.Pods{Cgroups: m.cgroups, Cpus: m.cpus, Client: r.client, Records: r.records, Index: r.index, Host: m.host, Log: r.log}
	oci := &oci.Runtimes{
		Dirs: r.dirs, DefaultRuntime: cfg.OCIRuntime, ShippedRuntime: cfg.ShippedRuntime, Handlers: cfg.Handlers,
		Snapshotter: cfg.Snapshotter, Log: r.log,
	}
	cdi := &device.CDI{Index: r.index, CDIDirs: cfg.CDIDirs}
	shims := &shims.Killer{Records: r.records, Dirs: r.dirs, OCI: oci, Endpoint: cfg.Endpoint, Namespace: cfg.Namespace, Log: r.log}
	r.secrets = &volume.Secrets{Dirs: r.dirs, Index: r.index, Host: m.host, Facts: facts, API: cfg.API, Limit: cfg.ObjectFilesMemory}
	imageVolumes := &volume.Images{Dirs: r.dirs, Client: r.client, Images: r.images, Snapshotter: cfg.Snapshotter}
	mounts := &volume.Mounts{Dirs: r.dirs, Images: r.images, OCI: oci, Log: r.log}
	files := &sandbox.Files{
		Dirs: r.dirs, PodCgroups: r.podCgroups, NodeName: cfg.NodeName, NodeIPs: cfg.NodeIPs, ClusterDomain: cfg.ClusterDomain,
		Nameservers: cfg.ClusterDNS, Resolver: cfg.Resolver, ResolvConf: cfg.ResolvConf, Log: r.log,
	}
	pauses := &sandbox.Pauses{Dirs: r.dirs, Files: files, OCI: oci, Facts: facts, DefaultRuntime: cfg.OCIRuntime, ShimPath: cfg.ShimPath, Log: r.log}
	r.network = &sandbox.Network{
		Net: r.net, Records: r.records, Index: r.index, Dirs: r.dirs, Files: files, Watch: r.watch, BootID: r.bootID, Log: r.log,
		Adds: sandbox.NewSetups(), NetSlots: locks.NewSlots(cfg.MaxConcurrent),
	}
	r.lifecycle = &container.Lifecycle{
		Client: r.client, Records: r.records, Index: r.index, Dirs: r.dirs, Logs: r.logs, PodLogs: r.podLogs, PodCgroups: r.podCgroups,
		Secrets: r.secrets, Shims: shims, Slots: work, Snapshotter: cfg.Snapshotter, BootID: r.bootID, Log: r.log,
	}
	r.removal = &upkeep.Remover{
		Client: r.client, Records: r.records, Index: r.index, Dirs: r.dirs, Lifecycle: r.lifecycle, Pauses: pauses, Net: r.net, Network: r.network,
		ImageVolumes: imageVolumes, ClaimVolumes: r.claimVolumes, PodCgroups: r.podCgroups, Watch: r.watch, Log: r.log,
		Teardown: upkeep.NewQueue(r.log, cfg.MaxConcurrent, r.reserve),
	}
	r.meter = &usage.Meter{
		Client: r.client, Index: r.index, Dirs: r.dirs, PodCgroups: r.podCgroups, Snapshotter: cfg.Snapshotter, BootID: r.bootID,
		UsagePeriod: cfg.UsagePeriod, Watch: r.watch, WithNamespace: r.ns, Log: r.log, Usage: usage.NewResults(),
	}
	r.sandboxes = &sandbox.Manager{
		Records: r.records, Index: r.index, Dirs: r.dirs, Files: files, Pauses: pauses, Net: r.net, Network: r.network, PodCgroups: r.podCgroups,
		OCI: oci, Meter: r.meter, Removal: r.removal, NodeName: cfg.NodeName, ClusterDomain: cfg.ClusterDomain, BootID: r.bootID, Log: r.log,
	}
	r.planner = &container.Planner{
		Index: r.index, Records: r.records, Dirs: r.dirs, Images: r.images, ImageUse: r.imageUse, OCI: oci, Files: files, Network: r.network,
		Mounts: mounts,
		Volumes: &volume.Pods{
			Dirs: r.dirs, ClaimVolumes: r.claimVolumes, Secrets: r.secrets, ImageVolumes: imageVolumes, Host: m.host, Facts: facts,
		},
		Secrets: r.secrets, CDI: cdi, PodCgroups: r.podCgroups,
		Profiles: &confine.Profiles{Dirs: r.dirs, SeccompProfileRoot: cfg.SeccompProfileRoot, SeccompDefault: cfg.SeccompDefault, Log: r.log},
		NodeName: cfg.NodeName, ClusterDomain: cfg.ClusterDomain, BootID: r.bootID, Facts: facts, Services: cfg.Services, API: cfg.API, Log: r.log,
	}
	r.creator = &container.Creator{
		Planner: r.planner, Client: r.client, Records: r.records, Index: r.index, Dirs: r.dirs, Logs: r.logs, PodLogs: r.podLogs,
		PodCgroups: r.podCgroups, OCI: oci, CDI: cdi, Mounts: mounts, Network: r.network, Lifecycle: r.lifecycle, Removal: r.removal,
		Slots: work, Host: m.host, ShimPath: cfg.ShimPath, Snapshotter: cfg.Snapshotter, Log: r.log,
	}
	r.processes = &process.Processes{Client: r.client, Records: r.records, Index: r.index, Dirs: r.dirs, Logs: r.logs, WithNamespace: r.ns, Log: r.log}
	r.garbage = &upkeep.Garbage{
		Client: r.client, Index: r.index, Lifecycle: r.lifecycle, PodLogs: r.podLogs, ImageUse: r.imageUse, Reserve: r.reserve,
		Endpoint: cfg.Endpoint, Snapshotter: cfg.Snapshotter, WithNamespace: r.ns, Log: r.log,
	}
	r.janitor = &upkeep.Janitor{
		Client: r.client, Records: r.records, Index: r.index, Dirs: r.dirs, Net: r.net, Logs: r.logs, PodLogs: r.podLogs, PodCgroups: r.podCgroups,
		ClaimVolumes: r.claimVolumes, Secrets: r.secrets, Pauses: pauses, Shims: shims, Sandboxes: r.sandboxes, Lifecycle: r.lifecycle, Removal: r.removal, Host: m.host,
		BootID: r.bootID, Endpoint: cfg.Endpoint, Snapshotter: cfg.Snapshotter, CNIConfDir: cfg.Network.OwnConfDir, Log: r.log,
	}
	r.follower = &follower{
		client: r.client, records: r.records, index: r.index, images: r.images, sandboxes: r.sandboxes, removal: r.removal, watch: r.watch,
		askVersion: r.containerd.askVersion, namespace: cfg.Namespace, connection: cfg.Connection, ns: r.ns, log: r.log,
	}
}
