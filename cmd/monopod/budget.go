package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path"
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/node/budget"
)

// Budgets that are smaller are mistakes: monopod would not get far.
const (
	leastMemory   = 48 << 20
	leastMilliCPU = 50
)

// budgets are what monopod may use itself.
func (c *Config) budgets() budget.Limits {
	memory, cpu := resource.Quantity{}, resource.Quantity{}
	if c.AgentMemoryBudget != "" {
		memory, _ = resource.ParseQuantity(c.AgentMemoryBudget) // it has been checked
	}
	if c.AgentCPUBudget != "" {
		cpu, _ = resource.ParseQuantity(c.AgentCPUBudget)
	}
	return budget.Limits{Memory: memory.Value(), MilliCPU: cpu.MilliValue()}
}

// leaveBudget removes the cgroups of a monopod that has ended.
func leaveBudget(sys budget.System, cfg *Config) error {
	agent, shims := budget.Names(cfg.CgroupRoot)
	return sys.Leave(cmp.Or(cfg.KubeletCgroups, agent), shims)
}

func (c *configCheck) budget(cfg *Config) {
	if q, err := resource.ParseQuantity(cfg.AgentMemoryBudget); cfg.AgentMemoryBudget != "" && (err != nil || q.Value() < leastMemory) {
		c.add("agentMemoryBudget", fmt.Sprintf("%q is not an amount of memory of %dMi or more", cfg.AgentMemoryBudget, leastMemory>>20), "write 96Mi")
	}
	if q, err := resource.ParseQuantity(cfg.AgentCPUBudget); cfg.AgentCPUBudget != "" && (err != nil || q.MilliValue() < leastMilliCPU) {
		c.add("agentCPUBudget", fmt.Sprintf("%q is not %dm of a processor or more", cfg.AgentCPUBudget, leastMilliCPU), "write 500m")
	}
	switch name := cfg.KubeletCgroups; {
	case name == "":
	case !path.IsAbs(name) || path.Clean(name) != name || name == "/":
		c.add("kubeletCgroups", fmt.Sprintf("%q is not a cgroup of monopod's own", name), "write it as /agent")
	case name == cfg.CgroupRoot || within(name, cfg.CgroupRoot):
		c.add("kubeletCgroups", fmt.Sprintf("%q is one of pods", name), "choose one outside of cgroupRoot")
	}
}

func within(cgroup, root string) bool {
	for ; cgroup != "/"; cgroup = path.Dir(cgroup) {
		if cgroup == root {
			return true
		}
	}
	return false
}

// keepToBudget moves this process into a cgroup of its own, if it is to have one, and says where shims go then. Where cgroups
// cannot be changed it works without.
func keepToBudget(sys budget.System, cfg *LoadedConfig, log *slog.Logger) budget.Cgroup {
	l := cfg.budgets()
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
