package ctrd

import (
	"context"
	"sync/atomic"

	"github.com/containerd/containerd/v2/client"

	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/imageuse"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/process"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/reserve"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/upkeep"
	"monopod/runner/ctrd/usage"
)

// Parts are the parts of a Runtime, for end-to-end tests only.
type Parts struct {
	Config     Config
	Dirs       layout.Dirs
	Client     *client.Client
	NS         func(context.Context) context.Context
	Index      *record.Index
	Records    *record.Store
	Net        *network.Network
	PodNetwork *sandbox.Network
	PodCgroups *cgroup.Pods
	PodLogs    *podlogs.Logs
	ImageStore *imagestore.Store
	ImageUse   *imageuse.Images
	Sandboxes  *sandbox.Manager
	Creator    *container.Creator
	Lifecycle  *container.Lifecycle
	Processes  *process.Processes
	Meter      *usage.Meter
	Removal    *upkeep.Remover
	Garbage    *upkeep.Garbage
	Reserve    *reserve.Reserve
	// Version is the latest known version of an external containerd.
	Version *atomic.Pointer[string]
}

// PartsOf returns the parts of a Runtime.
func PartsOf(r *Runtime) Parts {
	return Parts{
		Config: r.cfg, Dirs: r.dirs, Client: r.client, NS: r.ns, Index: r.index, Records: r.records, Net: r.net, PodNetwork: r.network,
		PodCgroups: r.podCgroups, PodLogs: r.podLogs, ImageStore: r.images, ImageUse: r.imageUse, Sandboxes: r.sandboxes, Creator: r.creator,
		Lifecycle: r.lifecycle, Processes: r.processes, Meter: r.meter, Removal: r.removal, Garbage: r.garbage, Reserve: r.reserve,
		Version: &r.containerd.version,
	}
}
