package daemon

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"monopod/internal/config"
	"monopod/node/budget"
)

// KeepToBudget limits this process as configured: by the Go runtime, and by a cgroup of its own, which it returns. If cgroups
// cannot be changed, it logs a warning.
func KeepToBudget(sys budget.System, cfg *config.Loaded, log *slog.Logger) budget.Cgroup {
	l := cfg.Budgets()
	if l.Memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(l.Memory / 4 * 3) // the kernel counts more than the Go heap
	}
	if n := max(2, int(l.MilliCPU+999)/1000); l.MilliCPU > 0 && n < runtime.GOMAXPROCS(0) && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n)
	}
	if l == (budget.Limits{}) && cfg.KubeletCgroups == "" {
		return budget.Cgroup{}
	}
	place, err := sys.Enter(cfg.KubeletCgroups, cfg.CgroupRoot, l)
	if err != nil {
		log.Warn("no cgroup limits monopod to its budget", "err", err)
	}
	if place.OOMKills > 0 {
		log.Warn("the kernel killed monopod or a child process because agentMemoryBudget was too small", "processes", place.OOMKills)
	}
	return place
}
