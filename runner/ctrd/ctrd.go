// Package ctrd runs pods on containerd: it implements runner.Runtime with containerd's v2 client.
//
// It owns the assembly of the parts below it, each of which owns its state: record (what survives the agent), sandbox and container (what a pod
// is made of), cgroup, volume, podlogs, process, usage, imageuse and upkeep (what takes it apart). docs/adr/0010 has a table of them. It decides
// nothing (runner/plan does) and touches nothing that does not carry its labels or lie in its directories.
//
// Goroutines: Run keeps the event subscription, the teardown queue, the measuring of disks, the use of images and the preload watcher; each
// CreateSandbox starts one for CNI ADD, which Close waits for; logs has two per attached container.
package ctrd

import (
	"log/slog"
	"time"

	"monopod/runner"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/spec"
)

// DefaultNamespace is the containerd namespace of all our objects.
const DefaultNamespace = "monopod"

// Config of a Runtime. Open fills in the defaults of DefaultConfig for zero fields.
type Config struct {
	// RootDirectory is persistent: embedded containerd, pod directories, volumes.
	RootDirectory string
	// StateDirectory is volatile: pins, shm, FIFOs, exit records, sockets.
	StateDirectory string
	// PodLogsDir is where log files go, e.g. /var/log/pods.
	PodLogsDir string
	// ContainerLogsDir gets the links that log collectors look for; empty: none.
	ContainerLogsDir string
	// Endpoint is unix:///path of a running containerd; empty: containerd runs inside this process.
	Endpoint string
	// Namespace is the containerd namespace.
	Namespace string
	// Snapshotter is the name of the snapshotter; empty: overlayfs, or what works on RootDirectory.
	Snapshotter string
	// OCIRuntime is the path or name of runc or crun.
	OCIRuntime string
	// ShippedRuntime is the path of one that may be able to do more, for pods that need it; empty: there is none.
	ShippedRuntime string
	// Handlers finds the OCI runtimes of RuntimeClasses; nil: there are none.
	Handlers func(handler string) (path string, err error)
	// ShimPath is the absolute path of our shim.
	ShimPath string
	// ShimCgroups are the directories of cgroups, one for each hierarchy, that shims of the embedded containerd are born in; empty: those of this
	// process.
	ShimCgroups []string
	// CgroupParent is the cgroup below which pod cgroups are made.
	CgroupParent string
	// PodsLimits are those of all pods together; the zero PodsLimits: there are none.
	PodsLimits spec.PodsLimits
	// CgroupDriver says who makes cgroups; empty: we do.
	CgroupDriver spec.CgroupDriver
	// Enforce says how resources are enforced.
	Enforce spec.Enforcement
	// ReservedCPUs is the list of processors that no container gets for itself.
	ReservedCPUs string

	NodeName string
	// NodeIPs returns the node's addresses of now, IPv4 first: there may be none yet when the machine has booted.
	NodeIPs    func() []string
	ClusterDNS []string
	// Resolver returns the addresses of our own resolver, which pods use when ClusterDNS is empty; nil: there is none.
	Resolver      func() []string
	ClusterDomain string
	// ResolvConf is the host's resolver configuration; empty: none is used.
	ResolvConf string
	// SeccompProfileRoot holds the profiles of seccompProfile Localhost; empty: seccomp in RootDirectory.
	SeccompProfileRoot string
	// SeccompDefault: containers that name no seccomp profile get RuntimeDefault.
	SeccompDefault bool
	// CDIDirs hold the CDI specs of this machine's devices, later ones win.
	CDIDirs []string
	// MaxConcurrent bounds how many containers are created, and how many networks set up, at once; 0: by the processors.
	MaxConcurrent int

	// UsagePeriod is how often the use of the disk is measured, of pods that have a limit; 0: 10 s.
	UsagePeriod time.Duration

	// Logs bounds the log files.
	Logs logs.Limits
	// Events keeps what befalls pods beside what is done to them; nil: nobody does.
	Events runner.Recorder

	// Connection, which may be nil, is told why containerd does not answer any more, and with nil that it does again.
	Connection func(error)

	Network network.Config
	Image   imagestore.Config
	Log     *slog.Logger
}

// DefaultConfig returns the values of a stand-alone node.
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
