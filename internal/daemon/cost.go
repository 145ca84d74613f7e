package daemon

import (
	"math"
	"os"
	"runtime/debug"

	"monopod/internal/boottime"
	"monopod/internal/version"
	"monopod/node/budget"
	"monopod/node/localapi"
)

// cost is what this process and its shims cost.
func (a *App) cost() localapi.Agent {
	now := boottime.Since()
	out := localapi.Agent{PID: os.Getpid(), Version: version.String(), Conditions: a.strain.conditions(), Warnings: a.cfg.ProviderWarnings()}
	out.Agent.Add("/proc", out.PID, now)
	for _, pid := range budget.Children("/proc", shimName, a.cfg.StateDirectory) {
		out.Shims.Add("/proc", pid, now)
	}
	out.Cgroup, out.Budget = a.Place.Name, a.Place.Limits
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		out.MemoryLimitBytes = limit
	}
	return out
}
