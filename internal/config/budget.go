package config

import (
	"fmt"
	"path"

	"monopod/internal/quantity"
	"monopod/node/budget"
)

// Lower bounds of the budgets: monopod cannot work with less.
const (
	leastMemory   = 48 << 20
	leastMilliCPU = 50
)

// Budgets returns the limits for monopod itself.
func (c *Config) Budgets() budget.Limits {
	memory, _ := quantity.Parse(c.AgentMemoryBudget) // validated before; empty is zero
	cpu, _ := quantity.Parse(c.AgentCPUBudget)
	return budget.Limits{Memory: memory.Value(), MilliCPU: cpu.MilliValue()}
}

// ObjectFilesBytes returns how much memory the content of objects may take in all pods; negative: no limit.
func (c *Config) ObjectFilesBytes() int64 { return bytesOf(c.ObjectFilesMemory) }

func (c *configCheck) budget(cfg *Config) {
	if q, err := quantity.Parse(cfg.AgentMemoryBudget); cfg.AgentMemoryBudget != "" && (err != nil || q.Value() < leastMemory) {
		c.add("agentMemoryBudget", fmt.Sprintf("%q is not an amount of memory of %dMi or more", cfg.AgentMemoryBudget, leastMemory>>20), "write 96Mi")
	}
	if q, err := quantity.Parse(cfg.AgentCPUBudget); cfg.AgentCPUBudget != "" && (err != nil || q.MilliValue() < leastMilliCPU) {
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
