// Package containers is the daemon's side of its container runtime: the interface, how the runtime is opened from the configuration, and access to
// the open one.
//
// It must not know containerd's API, which belongs to runner/ctrd, nor decide when actions are applied. It starts no goroutines.
package containers

import (
	"context"
	"log/slog"

	"monopod/internal/config"
	"monopod/internal/daemon/imageservice"
	"monopod/internal/daemon/telemetry"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/service"
	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// Runtime runs pods and keeps their images.
type Runtime interface {
	runner.Runtime
	telemetry.Measured
	// Run does the runtime's background work until ctx ends.
	Run(ctx context.Context) error
	// Preload imports the configured image archives, calls done once, and imports changed archives until ctx ends.
	Preload(ctx context.Context, done func(error)) error
	// FollowObjects sets the objects that pods may refer to, and for which origins missing objects are known to be deleted.
	FollowObjects(objects *manifests.Objects, removable func(manifests.Origin) bool)
	// Cleanup removes what is not part of a pod: bridge, firewall rules, cgroups. It fails while there are pods. Run must be running.
	Cleanup(ctx context.Context) error
	// Purge deletes the remaining images and records of this instance in an external containerd, after Cleanup.
	Purge(ctx context.Context) error
	// SyncPins keeps exactly the images with these digests, even if their tags move. gone are those that are not present.
	SyncPins(ctx context.Context, digests []string) (gone []string, err error)
	// Images returns the image service.
	Images() imageservice.Service
	// ReclaimContainers deletes exited containers that are no longer needed, and returns how many bytes that freed.
	ReclaimContainers(ctx context.Context) (int64, error)
	// Close releases the runtime. Containers keep running.
	Close() error
}

// Rules are the kernel rules that translate connections to Services.
type Rules interface {
	// Supported returns an error if the kernel does not support them.
	Supported() error
	// Apply updates the kernel to the table.
	Apply(ctx context.Context, t service.Table) error
	// Repair restores the applied rules, and reports whether they were damaged.
	Repair(ctx context.Context) (damaged bool, err error)
	// Watch calls damaged when rules have been removed, until ctx ends.
	Watch(ctx context.Context, damaged func()) error
	// Remove removes all rules.
	Remove() error
}

// Deps is what a runtime gets from the daemon that opens it. Commands that open a runtime without a daemon set Log only.
type Deps struct {
	Log *slog.Logger
	// Events records events of pods; nil: they are not recorded.
	Events runner.Recorder
	// NameServers returns the addresses of monopod's own DNS server for pods; nil: there is none.
	NameServers func() []string
	// Services returns the environment variables of the Services in a namespace that pods of a source see; nil means none.
	Services func(source, namespace string) map[string]string
	// API is the Kubernetes API of this machine; if nil, pods cannot use it.
	API spec.API
	// Connection is called with an error when containerd stops answering, and with nil when it answers again. It may be nil.
	Connection func(error)
	// Networked is called with the network of new pods, when it has been set up: the name of a CNI network, or monopod's own bridge. It may be nil.
	Networked func(cni, bridge string)
	// Checked is called when a periodic check of the network begins. It may be nil.
	Checked func()
	// PodsLimits limits all pods together; the zero value: no limit.
	PodsLimits limits.AllPods
	// ShimCgroups are the cgroup directories in which shims are started; nil: those of this process.
	ShimCgroups []string
}

// OpenFunc opens a runtime.
type OpenFunc func(ctx context.Context, cfg *config.Loaded, d Deps) (Runtime, error)

// NodeIPs returns a function that reads the addresses of this machine at each call, because they change with its network.
func NodeIPs(addresses func() ([]string, error), log *slog.Logger) func() []string {
	return func() []string {
		ips, err := addresses()
		if err != nil {
			log.Debug("pods have no host address", "err", err)
		}
		return ips
	}
}
