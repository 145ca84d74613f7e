package daemon

import (
	"math"
	"os"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/version"
	"monopod/node/budget"
	"monopod/node/localapi"
)

// processUsage reads the resource usage of this process and its shims.
type processUsage struct {
	cfg      *config.Loaded
	cgroup   budget.Cgroup
	pressure func() []corev1.NodeCondition
	network  *containers.PodNetwork
}

func (u *processUsage) read() localapi.Agent {
	now := boottime.Since()
	out := localapi.Agent{PID: os.Getpid(), Version: version.String(), Conditions: u.pressure(), Warnings: containers.Warnings(u.cfg), Network: u.network.Text()}
	out.Agent.Add("/proc", out.PID, now)
	for _, pid := range budget.Children("/proc", containers.ShimName, u.cfg.StateDirectory) {
		out.Shims.Add("/proc", pid, now)
	}
	out.Cgroup, out.Budget = u.cgroup.Name, u.cgroup.Limits
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		out.MemoryLimitBytes = limit
	}
	return out
}
