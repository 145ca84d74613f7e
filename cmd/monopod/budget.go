package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"monopod/internal/config"
	"monopod/node/budget"
)

// leaveBudget removes the cgroups of a monopod that has ended.
func leaveBudget(sys budget.System, cfg *config.Config) error {
	agent, shims := budget.Names(cfg.CgroupRoot)
	return sys.Leave(cmp.Or(cfg.KubeletCgroups, agent), shims)
}

// keepToBudget moves this process into a cgroup of its own, if it is to have one, and says where shims go then. Where cgroups
// cannot be changed it works without.
func keepToBudget(sys budget.System, cfg *config.Loaded, log *slog.Logger) budget.Cgroup {
	l := cfg.Budgets()
	if l.Memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(l.Memory / 4 * 3) // the kernel counts more than the heap
	}
	if n := max(2, int(l.MilliCPU+999)/1000); l.MilliCPU > 0 && n < runtime.GOMAXPROCS(0) && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n)
	}
	if l == (budget.Limits{}) && cfg.KubeletCgroups == "" {
		return budget.Cgroup{}
	}
	place, err := sys.Enter(cfg.KubeletCgroups, cfg.CgroupRoot, l)
	if err != nil {
		log.Warn("no cgroup keeps monopod to its budget", "err", err)
	}
	if place.OOMKills > 0 {
		log.Warn("the kernel has killed monopod, or what it started, because agentMemoryBudget was too small", "processes", place.OOMKills)
	}
	cfg.ShimCgroups = place.Shims
	return place
}

// budgetText says what limits there are.
func budgetText(l budget.Limits) string {
	memory, cpu := "all the memory", "all processors"
	if l.Memory > 0 {
		memory = mebibytes(float64(l.Memory)) + " of memory"
	}
	if l.MilliCPU > 0 {
		cpu = fmt.Sprintf("%.2f processors", float64(l.MilliCPU)/1000)
	}
	return memory + " and " + cpu
}
