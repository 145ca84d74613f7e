package config

import (
	"errors"
	"time"

	"monopod/node/pressure"
	"monopod/runner/ctrd/bounded"
)

// pressureKeys are about what happens when the machine is short of something.
func pressureKeys() []Key {
	return []Key{
		{Path: "evictionHard", Kind: kindTexts, derived: "`{memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}`", doc: "When this little is left, dead containers and unused images are removed, then pods evicted, one after the other: by `memory.available`, `nodefs.available`, `nodefs.inodesFree` (of `rootDirectory`), `imagefs.available`, `imagefs.inodesFree` and `pid.available`. What is written replaces all defaults; `{memory.available: \"0\"}` switches all of it off."},
		{Path: "mergeDefaultEvictionSettings", Kind: kindBool, def: false, doc: "Whether the defaults of `evictionHard` count for signals that it does not have."},
		{Path: "evictionSoft", Kind: kindTexts, doc: "When this little is left for as long as `evictionSoftGracePeriod` says, the same is done, but pods have `evictionMaxPodGracePeriod` to stop."},
		{Path: "evictionSoftGracePeriod", Kind: kindTexts, doc: "How long each threshold of `evictionSoft` must be met, as in `{memory.available: 1m30s}`."},
		{Path: "evictionMaxPodGracePeriod", Kind: kindInt, def: int64(0), doc: "Most seconds that a pod has to stop when it is evicted for `evictionSoft`, if its own grace period is not shorter."},
		{Path: "evictionMinimumReclaim", Kind: kindTexts, doc: "How much more than the threshold must be free before it is not met any more, by signal: `{nodefs.available: 500Mi}`."},
		{Path: "evictionPressureTransitionPeriod", Kind: kindDuration, def: 5 * time.Minute, doc: "How long evicted pods do not come back, and new ones do not start, after a threshold was met last; up to 24h."},
		{Path: "evictionCheckFrequency", Kind: kindDuration, def: 10 * time.Second, doc: "How often is looked how much is left; 1s to 5m. Where the kernel tells (PSI) that programs wait for memory, that is looked at at once."},
		{Path: "evictCriticalPods", Kind: kindBool, def: false, doc: "Whether pods with a priority of 2000000000 and above are evicted like others. Those with the annotation `monopod.dev/protected: \"true\"` never are."},
	}
}

// Pressure is the configuration of the monitor. limited says that all pods together have a limit of memory.
func (c *Config) Pressure(limited bool) (pressure.Config, error) {
	thresholds, err := pressure.Written{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod, MinReclaim: c.EvictionMinimumReclaim,
		MergeDefaults: c.MergeDefaultEvictionSettings, Allocatable: limited,
	}.Parse()
	return pressure.Config{
		Thresholds: thresholds, MaxPodGrace: time.Duration(c.EvictionMaxPodGracePeriod) * time.Second, Transition: c.EvictionPressureTransitionPeriod,
		Period: c.EvictionCheckFrequency, EvictCritical: c.EvictCriticalPods,
	}, err
}

// EvictsBelow returns what of a disk must be free, by any of the thresholds, for no pod to be evicted.
func EvictsBelow(thresholds []pressure.Threshold) func(size bounded.Room) bounded.Room {
	return func(size bounded.Room) bounded.Room {
		var keep bounded.Room
		for _, t := range thresholds {
			switch t.Signal {
			case pressure.NodeFsAvailable, pressure.ImageFsAvailable:
				keep.Bytes = max(keep.Bytes, t.Amount.Of(size.Bytes))
			case pressure.NodeFsInodesFree, pressure.ImageFsInodesFree:
				keep.Inodes = max(keep.Inodes, t.Amount.Of(size.Inodes))
			}
		}
		return keep
	}
}

func (c *configCheck) pressure(cfg *Config) {
	_, err := cfg.Pressure(false)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if m, ok := errors.AsType[*pressure.Mistake](err); ok {
				c.add(m.Key, m.Err.Error(), "")
			}
		}
	}
	c.between("evictionMaxPodGracePeriod", cfg.EvictionMaxPodGracePeriod, 0, 3600)
}
