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
		{Path: "priority", Kind: kindInt, doc: "Pods of this priority, and above up to the next entry, are stopped together; those below all entries with the first."},
		{Path: "shutdownGracePeriodSeconds", Kind: kindInt, doc: "How many seconds they have."},
	}
}

func machineKeys() []Key {
	return []Key{
		{Path: "shutdownGracePeriod", Kind: kindDuration, def: time.Duration(0), doc: "How long a shutdown of the machine waits for pods to stop. 0: it does not, and pods are killed with everything else. See `monopod docs machine`."},
		{Path: "shutdownGracePeriodCriticalPods", Kind: kindDuration, def: time.Duration(0), doc: "Which part of `shutdownGracePeriod` is for pods of priority 2000000000 and above, such as `system-node-critical`, after all others."},
		{Path: "shutdownGracePeriodByPodPriority", Kind: kindGraces, doc: "Instead of the two others: time by priority, the lowest first, as in `[{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 1000, shutdownGracePeriodSeconds: 10}]`."},
		{Path: "agentMemoryBudget", Kind: kindString, doc: "How much memory monopod itself may use, as `96Mi`: the limit of a cgroup of its own. Its garbage collector works harder the nearer it comes to three quarters of that (or to `GOMEMLIMIT`). Pods and shims are not in it. Empty: as little as it gets by with anyway."},
		{Path: "agentCPUBudget", Kind: kindString, doc: "How much of the processors monopod itself may use, as `500m` or `1`, in a cgroup of its own. Empty: what there is."},
		{Path: "kubeletCgroups", Kind: kindString, doc: "The cgroup of monopod itself, as `/agent`. Empty: with a budget it is `agent` below that of its service, where systemd delegates it, else `<cgroupRoot>-agent`; without one it is where monopod was started."},
		{Path: "lockFile", Kind: kindPath, doc: "File that monopod locks before it looks after pods, as a kubelet does with `--lock-file`; it waits while another agent holds the lock. Empty: none."},
		{Path: "exitOnLockContention", Kind: kindBool, def: false, doc: "Whether monopod hands the machine over and ends when somebody else opens or removes `lockFile`, as a kubelet does that is started with it."},
		{Path: "lockContentionPods", Kind: kindString, def: ContentionStop, doc: "What becomes of the pods then. `Stop`: they are stopped and removed before the lock is given back, since the kubelet runs copies of its own, for which ports and data must be free. `Keep`: they go on, for another monopod."},
	}
}

// What becomes of pods when another agent takes the machine over.
const (
	ContentionStop = "Stop"
	contentionKeep = "Keep"
)

// ShutdownGroups returns the groups of pods that stop one after the other before the machine goes down, the lowest priority first; nil: none.
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
		c.add("shutdownGracePeriodCriticalPods", fmt.Sprintf("%s is more than shutdownGracePeriod (%s), of which it is a part", DurationText(critical), DurationText(total)), "")
	}
	if len(cfg.ShutdownGraces) > 0 && (total > 0 || critical > 0) {
		c.add("shutdownGracePeriodByPodPriority", "takes the place of shutdownGracePeriod and shutdownGracePeriodCriticalPods", "set one or the other")
	}
	c.oneOf("lockContentionPods", cfg.LockContentionPods, ContentionStop, contentionKeep)
	if cfg.ExitOnLockContention && cfg.LockFile == "" {
		c.add("exitOnLockContention", "has no effect without lockFile", "set lockFile")
	}
	c.budget(cfg)
	seen := map[int64]bool{}
	for i, g := range cfg.ShutdownGraces {
		if g.Priority < -1<<31 || g.Priority >= 1<<31 || seen[g.Priority] {
			c.add(fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].priority", i), fmt.Sprintf("%d is no priority, or stands twice", g.Priority), "")
		}
		if g.Seconds < 0 || g.Seconds > 3600 {
			c.add(fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds", i), fmt.Sprintf("%d is not between 0 and 3600", g.Seconds), "")
		}
		seen[g.Priority] = true
	}
}
