// Package ctrd implements runner.Runtime with containerd's v2 client; it assembles the parts below it, each of which owns its
// state (docs/adr/0010). It must not decide anything, which runner/plan does, and touches only what carries its labels or lies in
// its directories.
//
// Goroutines: Run keeps the event subscription, the teardown queue, disk measurement, image use and the preload watcher; each
// CreateSandbox starts one for the network set-up, which Close waits for; logs has two per attached container.
package ctrd

import (
	"log/slog"
	"time"

	"monopod/runner"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// DefaultNamespace is the default containerd namespace.
const DefaultNamespace = "monopod"

// Config of a Runtime. Open fills in the defaults of DefaultConfig for zero fields.
type Config struct {
	// RootDirectory is persistent: embedded containerd, pod directories, volumes.
	RootDirectory string
	// StateDirectory is volatile: pins, shm, FIFOs, exit records, sockets.
	StateDirectory string
	// PodLogsDir is where log files go, e.g. /var/log/pods.
	PodLogsDir string
	// ContainerLogsDir holds the links that log collectors read; empty disables them.
	ContainerLogsDir string
	// Endpoint is unix:///path of an external containerd; empty: containerd runs inside this process.
	Endpoint string
	// Namespace is the containerd namespace.
	Namespace string
	// Snapshotter is the name of the snapshotter; empty: overlayfs, or the one that works on RootDirectory.
	Snapshotter string
	// OCIRuntime is the path or name of runc or crun.
	OCIRuntime string
	// ShippedRuntime is the path of an OCI runtime with more features, for pods that need them; empty: none.
	ShippedRuntime string
	// Handlers returns the OCI runtime of a RuntimeClass handler; nil: none.
	Handlers func(handler string) (path string, err error)
	// ShimPath is the absolute path of our shim.
	ShimPath string
	// ShimCgroups are the cgroup directories, one for each hierarchy, in which shims of the embedded containerd start; empty:
	// those of this process.
	ShimCgroups []string
	// CgroupParent is the parent of all pod cgroups.
	CgroupParent string
	// PodsLimits are the limits of all pods together; zero: none.
	PodsLimits limits.AllPods
	// CgroupDriver creates the cgroups; empty: cgroupfs.
	CgroupDriver spec.CgroupDriver
	// Enforce configures how resources are enforced.
	Enforce spec.Enforcement
	// ReservedCPUs is the list of CPUs that are never assigned exclusively.
	ReservedCPUs string

	NodeName string
	// NodeIPs returns the current addresses of the node, IPv4 first. It may return none during boot.
	NodeIPs    func() []string
	ClusterDNS []string
	// Resolver returns the addresses of the built-in DNS server, which pods use if ClusterDNS is empty; nil: none.
	Resolver      func() []string
	ClusterDomain string
	// Services returns the environment variables of the Services in a namespace that pods of a source see; nil means none.
	Services func(source, namespace string) map[string]string
	// API is the Kubernetes API of this machine; if nil, pods cannot use it.
	API spec.API
	// ResolvConf is the host's resolver configuration; empty: none.
	ResolvConf string
	// SeccompProfileRoot holds the profiles of seccompProfile Localhost; empty: the directory seccomp in RootDirectory.
	SeccompProfileRoot string
	// SeccompDefault applies RuntimeDefault to containers without a seccomp profile.
	SeccompDefault bool
	// IDRangesDir is the directory, on a tmpfs, in which all monopods of the machine claim the user ids of their pods; empty: they are not
	// claimed.
	IDRangesDir string
	// CDIDirs hold the CDI specs of the devices; later directories win.
	CDIDirs []string
	// MaxConcurrent is the maximum number of containers created, and of networks set up, in parallel; 0: depends on the number of
	// CPUs.
	MaxConcurrent int

	// UsagePeriod is the interval between disk measurements of pods with a limit; 0: 10 s.
	UsagePeriod time.Duration

	// ObjectFilesMemory is how much memory the content of objects may take in all pods together; 0 and less: any.
	ObjectFilesMemory int64
	// Logs are the limits of the log files.
	Logs logs.Limits
	// Events records events about pods; nil disables it.
	Events runner.Recorder

	// Connection is called with an error when containerd stops answering, and with nil when it answers again; nil disables it.
	Connection func(error)

	Network network.Config
	Image   imagestore.Config
	Log     *slog.Logger
}

// DefaultConfig returns the defaults for a stand-alone node.
func DefaultConfig() Config {
	return Config{
		RootDirectory:    "/var/lib/monopod",
		StateDirectory:   "/run/monopod",
		PodLogsDir:       "/var/log/pods",
		ContainerLogsDir: "/var/log/containers",
		Namespace:        DefaultNamespace,
		OCIRuntime:       "runc",
		ShimPath:         "/usr/local/bin/containerd-shim-monopod-v2",
		CgroupParent:     "/monopod",
		ClusterDomain:    "cluster.local",
		ResolvConf:       "/etc/resolv.conf",
		CDIDirs:          []string{"/etc/cdi", "/var/run/cdi"},
	}
}
