package daemon

import (
	"log/slog"
	"net/netip"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/host"
	"monopod/node/budget"
	"monopod/node/capacity"
	"monopod/node/lockfile"
	"monopod/node/stats"
	"monopod/node/systemd"
)

// Deps is what a daemon needs besides its configuration. Only Log and Machine are required.
type Deps struct {
	Log     *slog.Logger
	Machine Machine
	// Host is used to delay shutdowns of the machine, if that is configured.
	Host host.Host
	// Manager is the service manager that has started this process.
	Manager *systemd.Notifier
	// Cgroup is the cgroup of this process, if it has one of its own.
	Cgroup budget.Cgroup
	// Lock is the held lock file. If it is set, the daemon ends when another agent wants the lock.
	Lock *lockfile.Lock
	// Copies maps manifests that are copies to the places where their author wrote them, as file:line.
	Copies map[string]string
}

// Machine is what a daemon reads of the machine besides files. Tests replace it.
type Machine struct {
	// Open starts or connects to the runtime.
	Open containers.OpenFunc
	// Addresses returns the addresses of this machine, IPv4 first.
	Addresses func() ([]string, error)
	// Capacity returns the resources of the machine, with those of the file system of a directory; nil: pods are not limited.
	Capacity func(storage string) (capacity.Machine, error)
	// Gateways returns the addresses at which pods reach a DNS server on this machine; nil: there is no such server.
	Gateways func(*config.Config) ([]netip.Prefix, error)
	// Services returns the rules that translate connections to Services; if nil, a Service is only a DNS name for its pods.
	Services func(cfg *config.Config, pods []netip.Prefix, log *slog.Logger) containers.Rules
	// Cgroups returns where cgroups are mounted; nil: stats.FindHierarchies.
	Cgroups func() (stats.Hierarchies, error)
	// Release returns unused memory of this process to the machine; nil: the default of package memory.
	Release func()
	// LockTimeout bounds how long to wait for another instance that is ending.
	LockTimeout time.Duration
	// VisibleTimeout bounds how long the answer of apply waits until the change is visible; 0: the default of package apply.
	VisibleTimeout time.Duration
	// Now is the clock of restarts; nil: time.Now.
	Now func() time.Time
	// Aside is how long pods stay whose file is renamed to a name that is not read; 0: the default of package file.
	Aside time.Duration
	// Runs is used by runs of once and up only.
	Runs RunMachine
}

// Waits between attempts to open the runtime. An attempt that takes longer than slowOpen is shown as the trouble of pods.
const (
	slowOpen    = time.Second
	FirstReopen = 200 * time.Millisecond
	lastReopen  = 5 * time.Second
)
