package stats

import (
	"bytes"
	"path/filepath"
	"strings"
)

// readUnified reads a cgroup of v2; false: there is none.
func readUnified(r *reader, dir string, u *Usage) bool {
	there := false
	r.pairs(func(key []byte, n uint64) {
		there = true
		switch string(key) {
		case "usage_usec":
			u.CPU.Usage = micros(n)
		case "user_usec":
			u.CPU.User = micros(n)
		case "system_usec":
			u.CPU.System = micros(n)
		case "nr_periods":
			u.CPU.Periods = n
		case "nr_throttled":
			u.CPU.Throttled = n
		case "throttled_usec":
			u.CPU.ThrottledTime = micros(n)
		}
	}, dir, "cpu.stat")
	if !there {
		return false
	}
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
	r.pairs(func(key []byte, n uint64) {
		switch string(key) {
		case "anon":
			m.RSS = n
		case "file":
			m.Cache = n
		case "file_mapped":
			m.Mapped = n
		case "kernel":
			m.Kernel = n
		case "inactive_file":
			inactive = n
		case "pgfault":
			m.Faults = n
		case "pgmajfault":
			m.MajorFaults = n
		}
	}, dir, "memory.stat")
	m.WorkingSet = m.Usage - min(inactive, m.Usage)
	r.pairs(func(key []byte, n uint64) {
		switch string(key) {
		case "max":
			m.Failures = n
		case "oom_kill":
			m.OOMKills = n
		}
	}, dir, "memory.events")
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
			switch key {
			case "rbytes":
				d.ReadBytes = number(value)
			case "wbytes":
				d.WriteBytes = number(value)
			case "rios":
				d.Reads = number(value)
			case "wios":
				d.Writes = number(value)
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

// rootMemory are counts of the whole machine that only the root cgroup has.
func (h Hierarchies) inactiveFile(r *reader) (n uint64) {
	file := filepath.Join(h.Unified, "memory.stat")
	name := []byte("inactive_file")
	if h.Controllers != nil {
		file, name = filepath.Join(h.Controllers["memory"], "memory.stat"), []byte("total_inactive_file")
	}
	r.pairs(func(key []byte, v uint64) {
		if bytes.Equal(key, name) {
			n = v
		}
	}, file)
	return n
}
