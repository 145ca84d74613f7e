// Package stats reads what the machine, its pods and their containers use: processor, memory, swap, processes, disks, network and pressure,
// as the kernel counts it in cgroups (v1 and v2) and in /proc.
//
// It reads on request only. Results that cost a walk over directories are cached for a while. It must not change anything; callers pass the
// places of the pods.
//
// Goroutines: none.
package stats

import (
	"time"

	"monopod/internal/model"
)

// PSI is pressure stall information: how long tasks waited for something that others used.
type PSI struct {
	// Some: at least one task waited; Full: all of them did.
	Some, Full Stall
}

// Stall is one line of it. The averages are parts of a hundred, over 10, 60 and 300 seconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// CPU is processor time since the cgroup was made.
type CPU struct {
	Usage, User, System time.Duration
	// NanoCores is the use per second at present: a billion is one whole processor. Nil where it was not asked for.
	NanoCores *uint64
	// Periods are those of the quota, Throttled those in which it was used up, ThrottledTime what was waited for that.
	Periods, Throttled uint64
	ThrottledTime      time.Duration
	PSI                *PSI
}

// Memory is in bytes.
type Memory struct {
	Usage uint64
	// WorkingSet is Usage without inactive file pages.
	WorkingSet uint64
	// RSS is anonymous memory, Cache that of files, Mapped what of it is mapped.
	RSS, Cache, Mapped uint64
	// Kernel is what the kernel has for it; 0 where it is not told.
	Kernel uint64
	// Peak is the highest Usage; 0 where it is not told.
	Peak uint64
	// Limit is 0 where there is none.
	Limit uint64
	// Faults are all page faults, MajorFaults those that read from a disk.
	Faults, MajorFaults uint64
	// Failures is how often the limit was hit, OOMKills how many processes were killed for it.
	Failures, OOMKills uint64
	PSI                *PSI
}

// Swap is in bytes. Limit is 0 where there is none.
type Swap struct{ Usage, Limit uint64 }

// Pids are tasks. Limit is 0 where there is none.
type Pids struct{ Current, Limit uint64 }

// IO is what was read from and written to block devices.
type IO struct {
	Devices []DeviceIO
	PSI     *PSI
}

// DeviceIO is about one block device.
type DeviceIO struct {
	Major, Minor                         uint64
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// Usage is what one cgroup, and all in it, uses.
type Usage struct {
	Time   time.Time
	CPU    CPU
	Memory Memory
	// Swap is nil where the kernel does not count it.
	Swap *Swap
	Pids Pids
	IO   IO
}

// Interface is one network interface, counted since it was made.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// Filesystem is a mounted file system.
type Filesystem struct {
	Time time.Time
	// Device is its id, that of Stat_t: two paths on one file system have the same.
	Device uint64
	// Capacity is all of it, Available what users other than root can still have, Used what is taken; in bytes.
	Capacity, Available, Used uint64
	Inodes, InodesFree        uint64
}

// DiskUse is what a directory takes.
type DiskUse struct{ Bytes, Inodes uint64 }

// PodDisk is what a pod has on disk, measured at Time.
type PodDisk struct {
	Time time.Time
	// Volumes are its emptyDirs, by name. Those in memory are part of Memory.
	Volumes map[string]DiskUse
	Memory  map[string]bool
	// Layers are what containers have written to their root file systems, Logs their log files, by container.
	Layers, Logs map[string]DiskUse
	// Others is all else that the node's disk is given back when the pod goes.
	Others DiskUse
}

// Total is all of it but what is in memory.
func (d *PodDisk) Total() DiskUse {
	t := d.Others
	add := func(u DiskUse) { t.Bytes, t.Inodes = t.Bytes+u.Bytes, t.Inodes+u.Inodes }
	for name, u := range d.Volumes {
		if !d.Memory[name] {
			add(u)
		}
	}
	for _, u := range d.Layers {
		add(u)
	}
	for _, u := range d.Logs {
		add(u)
	}
	return t
}

// Container is what one container uses.
type Container struct {
	model.ContainerPlace
	Usage
}

// Pod is what a pod uses.
type Pod struct {
	model.Place
	Usage
	// Containers are those that run. It hides the places of Place.
	Containers []Container
	// Network is empty for a pod on the host's network, and while no container runs.
	Network []Interface
	// Disk is nil where it was not asked for.
	Disk *PodDisk
}

// Machine is what the whole machine uses.
type Machine struct {
	Usage
	// Boot is when it was booted.
	Boot time.Time
	// Total is its memory, Available what the kernel could give to new processes without swapping (MemAvailable).
	Total, Available uint64
	// MaxPID is how many tasks there can be; Pids.Limit is that, too.
	MaxPID  uint64
	Network []Interface
	// Agent is monopod itself, Pods all pods together; nil where they are unknown.
	Agent, Pods *Usage
}
