package config

import (
	"errors"
	"time"

	"monopod/node/pressure"
	"monopod/runner/ctrd/bounded"
)

// pressureKeys are the keys about eviction.
func pressureKeys() []Key {
	return []Key{
		{Path: "evictionHard", Kind: kindTexts, derived: "`{memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}`", doc: "Thresholds of free resources. Below one, dead containers and unused images are removed, then pods are evicted one at a time. Signals: `memory.available`, `nodefs.available`, `nodefs.inodesFree` (of `rootDirectory`), `imagefs.available`, `imagefs.inodesFree` and `pid.available`. A value replaces all defaults; `{memory.available: \"0\"}` disables all thresholds."},
		{Path: "mergeDefaultEvictionSettings", Kind: kindBool, def: false, doc: "Whether signals missing in `evictionHard` keep their default thresholds."},
		{Path: "evictionSoft", Kind: kindTexts, doc: "Thresholds that act like those of `evictionHard` once they have been met for `evictionSoftGracePeriod`; evicted pods have `evictionMaxPodGracePeriod` to stop."},
		{Path: "evictionSoftGracePeriod", Kind: kindTexts, doc: "How long each threshold of `evictionSoft` must be met before it acts, as in `{memory.available: 1m30s}`."},
		{Path: "evictionMaxPodGracePeriod", Kind: kindInt, def: int64(0), doc: "Maximum grace period, in seconds, of a pod evicted because of `evictionSoft`; a shorter one of the pod applies."},
		{Path: "evictionMinimumReclaim", Kind: kindTexts, doc: "Amount above the threshold that must be free before the pressure ends, by signal: `{nodefs.available: 500Mi}`."},
		{Path: "evictionPressureTransitionPeriod", Kind: kindDuration, def: 5 * time.Minute, doc: "Time after a threshold was last met during which evicted pods stay away and new ones do not start; up to 24h."},
		{Path: "evictionCheckFrequency", Kind: kindDuration, def: 10 * time.Second, doc: "Eviction check interval; 1s to 5m. Where the kernel reports memory pressure (PSI), a report triggers a check immediately."},
		{Path: "evictCriticalPods", Kind: kindBool, def: false, doc: "Whether pods with a priority of 2000000000 and above are evicted like others. Pods with the annotation `monopod.dev/protected: \"true\"` are never evicted."},
	}
}

// Pressure returns the configuration of the eviction monitor. limited means that all pods together have a memory limit.
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

// EvictsBelow returns a function that computes the free space below which some threshold evicts pods, for a disk of that size.
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
