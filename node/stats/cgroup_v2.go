package stats

import (
	"strings"
)

// readUnified reads a cgroup of v2; false: there is none.
func readUnified(r *reader, dir string, u *Usage) bool {
	var usage, user, system, throttled uint64
	if !r.counts(map[string]*uint64{
		"usage_usec": &usage, "user_usec": &user, "system_usec": &system,
		"nr_periods": &u.CPU.Periods, "nr_throttled": &u.CPU.Throttled, "throttled_usec": &throttled,
	}, dir, "cpu.stat") {
		return false
	}
	u.CPU.Usage, u.CPU.User, u.CPU.System, u.CPU.ThrottledTime = micros(usage), micros(user), micros(system), micros(throttled)
	memoryOfUnified(r, dir, &u.Memory)
	if usage, ok := r.number(dir, "memory.swap.current"); ok {
		u.Swap = &Swap{Usage: usage, Limit: r.value(dir, "memory.swap.max")}
	}
	u.Pids = Pids{Current: r.value(dir, "pids.current"), Limit: r.value(dir, "pids.max")}
	u.IO.Devices = devicesOfUnified(r.bytes(dir, "io.stat"))
	return true
}

func memoryOfUnified(r *reader, dir string, m *Memory) {
	m.Usage = r.value(dir, "memory.current")
	m.Limit = r.value(dir, "memory.max")
	m.Peak = r.value(dir, "memory.peak")
	var inactive uint64
	r.counts(map[string]*uint64{
		"anon": &m.RSS, "file": &m.Cache, "file_mapped": &m.Mapped, "kernel": &m.Kernel, "inactive_file": &inactive,
		"pgfault": &m.Faults, "pgmajfault": &m.MajorFaults,
	}, dir, "memory.stat")
	m.WorkingSet = m.Usage - min(inactive, m.Usage)
	r.counts(map[string]*uint64{"max": &m.Failures, "oom_kill": &m.OOMKills}, dir, "memory.events")
}

// devicesOfUnified reads lines like "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0".
func devicesOfUnified(text []byte) []DeviceIO {
	var all []DeviceIO
	for line := range lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		d, ok := device(fields[0])
		if !ok {
			continue
		}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if p := map[string]*uint64{"rbytes": &d.ReadBytes, "wbytes": &d.WriteBytes, "rios": &d.Reads, "wios": &d.Writes}[key]; p != nil {
				*p = number(value)
			}
		}
		all = append(all, d)
	}
	return all
}

// device reads "8:0".
func device(text string) (DeviceIO, bool) {
	major, minor, ok := strings.Cut(text, ":")
	if !ok {
		return DeviceIO{}, false
	}
	return DeviceIO{Major: number(major), Minor: number(minor)}, true
}

// inactiveFile returns the inactive page cache of the whole machine, in bytes.
func (h Hierarchies) inactiveFile(r *reader) (n uint64) {
	root, name := h.Unified, "inactive_file"
	if h.Controllers != nil {
		root, name = h.Controllers["memory"], "total_inactive_file"
	}
	r.counts(map[string]*uint64{name: &n}, root, "memory.stat")
	return n
}
