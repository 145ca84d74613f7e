package config

import (
	"fmt"
	"slices"
	"time"

	"monopod/node/shutdown"
	"monopod/runner"
)

// ShutdownGrace is an entry of `shutdownGracePeriodByPodPriority`.
type ShutdownGrace struct {
	Priority int64 `koanf:"priority"`
	Seconds  int64 `koanf:"shutdownGracePeriodSeconds"`
}

// shutdownGraceKeys are the keys of an entry of `shutdownGracePeriodByPodPriority`.
func shutdownGraceKeys() []Key {
	return []Key{
		{Path: "priority", Kind: kindInt, doc: "Pods from this priority up to that of the next entry are stopped together; pods below all entries stop with the first one."},
		{Path: "shutdownGracePeriodSeconds", Kind: kindInt, doc: "Seconds that these pods have to stop."},
	}
}

func machineKeys() []Key {
	return []Key{
		{Path: "shutdownGracePeriod", Kind: kindDuration, def: time.Duration(0), doc: "How long a shutdown of the machine waits for pods to stop. 0: it does not wait, and pods are killed like all other processes. See `monopod docs machine`."},
		{Path: "shutdownGracePeriodCriticalPods", Kind: kindDuration, def: time.Duration(0), doc: "Part of `shutdownGracePeriod` reserved for pods of priority 2000000000 and above, such as `system-node-critical`; they stop last."},
		{Path: "shutdownGracePeriodByPodPriority", Kind: kindGraces, doc: "Grace periods by priority, lowest first, instead of the two keys above, as in `[{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 1000, shutdownGracePeriodSeconds: 10}]`."},
		{Path: "agentMemoryBudget", Kind: kindString, doc: "Memory limit of monopod itself, as `96Mi`, enforced by a cgroup. The garbage collector works harder as usage approaches three quarters of it (or `GOMEMLIMIT`). Pods and shims do not count. Empty: no limit."},
		{Path: "agentCPUBudget", Kind: kindString, doc: "CPU limit of monopod itself, as `500m` or `1`, enforced by a cgroup. Empty: no limit."},
		{Path: "kubeletCgroups", Kind: kindString, doc: "Cgroup of monopod itself, as `/agent`. Empty, with a budget: `agent` below the cgroup of its service if systemd delegates it, else `<cgroupRoot>-agent`. Empty, without a budget: the cgroup in which monopod was started."},
		{Path: "lockFile", Kind: kindPath, doc: "File that monopod locks before it manages pods, like `--lock-file` of a kubelet; it waits while another agent holds the lock. Empty: none."},
		{Path: "exitOnLockContention", Kind: kindBool, def: false, doc: "Whether monopod exits when another process opens or removes `lockFile`, as a kubelet does when it is started with it."},
		{Path: "lockContentionPods", Kind: kindString, def: ContentionStop, doc: "What happens to pods on lock contention. `Stop`: they are stopped and removed before the lock is released, because the kubelet runs copies of its own that need their ports and data. `Keep`: they keep running, for another monopod."},
	}
}

// Values of lockContentionPods: what happens to pods when another agent takes over the machine.
const (
	ContentionStop = "Stop"
	contentionKeep = "Keep"
)

// ShutdownGroups returns the groups of pods in the order in which they stop before a shutdown of the machine, lowest priority first; nil
// means that pods are not stopped.
func (c *Config) ShutdownGroups() []shutdown.Group {
	var groups []shutdown.Group
	for _, g := range c.ShutdownGraces {
		groups = append(groups, shutdown.Group{Priority: int32(g.Priority), Grace: time.Duration(g.Seconds) * time.Second})
	}
	if len(groups) == 0 && c.ShutdownGracePeriod > 0 {
		groups = []shutdown.Group{
			{Grace: c.ShutdownGracePeriod - c.ShutdownGracePeriodCriticalPods},
			{Priority: runner.CriticalPriority, Grace: c.ShutdownGracePeriodCriticalPods},
		}
	}
	slices.SortFunc(groups, func(a, b shutdown.Group) int { return int(int64(a.Priority) - int64(b.Priority)) })
	return groups
}

func (c *configCheck) shutdown(cfg *Config) {
	total, critical := cfg.ShutdownGracePeriod, cfg.ShutdownGracePeriodCriticalPods
	for _, d := range []struct {
		key string
		val time.Duration
	}{{"shutdownGracePeriod", total}, {"shutdownGracePeriodCriticalPods", critical}} {
		if d.val != 0 && (d.val < time.Second || d.val > time.Hour) {
			c.add(d.key, fmt.Sprintf("%s is neither 0 nor between 1s and 1h", DurationText(d.val)), "")
		}
	}
	if critical > total {
		c.add("shutdownGracePeriodCriticalPods", fmt.Sprintf("%s is more than shutdownGracePeriod (%s), which includes it", DurationText(critical), DurationText(total)), "")
	}
	if len(cfg.ShutdownGraces) > 0 && (total > 0 || critical > 0) {
		c.add("shutdownGracePeriodByPodPriority", "replaces shutdownGracePeriod and shutdownGracePeriodCriticalPods", "set one or the other")
	}
	c.oneOf("lockContentionPods", cfg.LockContentionPods, ContentionStop, contentionKeep)
	if cfg.ExitOnLockContention && cfg.LockFile == "" {
		c.add("exitOnLockContention", "has no effect without lockFile", "set lockFile")
	}
	c.budget(cfg)
	seen := map[int64]bool{}
	for i, g := range cfg.ShutdownGraces {
		if g.Priority < -1<<31 || g.Priority >= 1<<31 || seen[g.Priority] {
			c.add(fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].priority", i), fmt.Sprintf("%d is not a priority, or is listed twice", g.Priority), "")
		}
		if g.Seconds < 0 || g.Seconds > 3600 {
			c.add(fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds", i), fmt.Sprintf("%d is not between 0 and 3600", g.Seconds), "")
		}
		seen[g.Priority] = true
	}
}
