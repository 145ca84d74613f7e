package stats

import (
	"math"
	"path/filepath"
	"strings"
	"time"
)

// ticks is how many clock ticks a second of /proc and cpuacct.stat has: USER_HZ, the same on each architecture of Linux
// that Go knows.
const ticks = 100

// unlimitedV1 is above each real limit: v1 writes a very large number where there is none.
const unlimitedV1 = 1 << 62

// readControllers reads a cgroup of v1; false: there is none.
func (h Hierarchies) readControllers(r *reader, cgroup string, u *Usage) bool {
	usage, there := r.number(h.Controllers["cpuacct"], cgroup, "cpuacct.usage")
	if !there {
		return false
	}
	u.CPU.Usage = time.Duration(usage)
	var user, system, throttled uint64
	r.counts(map[string]*uint64{"user": &user, "system": &system}, h.Controllers["cpuacct"], cgroup, "cpuacct.stat")
	u.CPU.User, u.CPU.System = time.Duration(user)*(time.Second/ticks), time.Duration(system)*(time.Second/ticks)
	r.counts(map[string]*uint64{"nr_periods": &u.CPU.Periods, "nr_throttled": &u.CPU.Throttled, "throttled_time": &throttled}, h.Controllers["cpu"], cgroup, "cpu.stat")
	u.CPU.ThrottledTime = time.Duration(throttled)
	h.memory(r, cgroup, u)
	u.Pids = Pids{Current: r.value(h.Controllers["pids"], cgroup, "pids.current"), Limit: r.value(h.Controllers["pids"], cgroup, "pids.max")}
	if root := h.Controllers["blkio"]; root != "" {
		u.IO.Devices = blkio(r, filepath.Join(root, cgroup))
	}
	return true
}

func (h Hierarchies) memory(r *reader, cgroup string, u *Usage) {
	dir, m := filepath.Join(h.Controllers["memory"], cgroup), &u.Memory
	const uncounted = math.MaxUint64
	inactive, swapped := uint64(0), uint64(uncounted)
	r.counts(map[string]*uint64{
		"total_rss": &m.RSS, "total_cache": &m.Cache, "total_mapped_file": &m.Mapped, "total_inactive_file": &inactive,
		"total_pgfault": &m.Faults, "total_pgmajfault": &m.MajorFaults, "total_swap": &swapped,
	}, dir, "memory.stat")
	m.Usage = r.value(dir, "memory.usage_in_bytes")
	m.WorkingSet = m.Usage - min(inactive, m.Usage)
	m.Limit = limitV1(r.value(dir, "memory.limit_in_bytes"))
	m.Peak = r.value(dir, "memory.max_usage_in_bytes")
	m.Kernel = r.value(dir, "memory.kmem.usage_in_bytes")
	m.Failures = r.value(dir, "memory.failcnt")
	r.counts(map[string]*uint64{"oom_kill": &m.OOMKills}, dir, "memory.oom_control")
	if swapped != uncounted {
		u.Swap = &Swap{Usage: swapped}
		if both := limitV1(r.value(dir, "memory.memsw.limit_in_bytes")); both > m.Limit && m.Limit > 0 {
			u.Swap.Limit = both - m.Limit
		}
	}
}

func limitV1(n uint64) uint64 {
	if n >= unlimitedV1 {
		return 0
	}
	return n
}

// blkio reads what the throttling layer counts: each device has it, whatever its scheduler is.
func blkio(r *reader, dir string) []DeviceIO {
	byDevice := map[string]int{}
	var all []DeviceIO
	at := func(name string) *DeviceIO {
		i, seen := byDevice[name]
		if !seen {
			d, ok := device(name)
			if !ok {
				return nil
			}
			i = len(all)
			byDevice[name], all = i, append(all, d)
		}
		return &all[i]
	}
	for line := range lines(r.bytes(dir, "blkio.throttle.io_service_bytes_recursive")) {
		blkioLine(string(line), at, func(d *DeviceIO) (*uint64, *uint64) { return &d.ReadBytes, &d.WriteBytes })
	}
	for line := range lines(r.bytes(dir, "blkio.throttle.io_serviced_recursive")) {
		blkioLine(string(line), at, func(d *DeviceIO) (*uint64, *uint64) { return &d.Reads, &d.Writes })
	}
	return all
}

// blkioLine reads "8:0 Read 4096".
func blkioLine(line string, at func(string) *DeviceIO, to func(*DeviceIO) (read, write *uint64)) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return
	}
	d := at(f[0])
	if d == nil {
		return
	}
	read, write := to(d)
	switch f[1] {
	case "Read":
		*read = number(f[2])
	case "Write":
		*write = number(f[2])
	}
}
