package daemon

import (
	"math"
	"os"
	"runtime/debug"

	"monopod/internal/boottime"
	"monopod/internal/daemon/containers"
	"monopod/internal/version"
	"monopod/node/budget"
	"monopod/node/localapi"
)

// usage reads the resource usage of this process and its shims.
func (m *machineParts) usage(c *core) localapi.Agent {
	now := boottime.Since()
	out := localapi.Agent{PID: os.Getpid(), Version: version.String(), Conditions: m.pressure(), Warnings: containers.Warnings(c.cfg), Network: c.access.Network.Text()}
	out.Agent.Add("/proc", out.PID, now)
	for _, pid := range budget.Children("/proc", containers.ShimName, c.cfg.StateDirectory) {
		out.Shims.Add("/proc", pid, now)
	}
	out.Cgroup, out.Budget = c.deps.Cgroup.Name, c.deps.Cgroup.Limits
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		out.MemoryLimitBytes = limit
	}
	return out
}
