package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine reads what the whole machine uses.
func (c *Collector) machine(r *reader, now time.Time) (Machine, error) {
	m := Machine{Usage: Usage{Time: now}}
	if err := machineMemory(r, c.cfg.Proc, &m); err != nil {
		return Machine{}, err
	}
	inactive := c.cfg.Hierarchies.inactiveFile(r)
	m.Memory.WorkingSet = m.Memory.Usage - min(inactive, m.Memory.Usage)
	r.counts(map[string]*uint64{"pgfault": &m.Memory.Faults, "pgmajfault": &m.Memory.MajorFaults, "oom_kill": &m.Memory.OOMKills}, c.cfg.Proc, "vmstat")
	m.CPU.PSI, m.Memory.PSI, m.IO.PSI = r.pressure(c.cfg.Proc, "pressure/cpu"), r.pressure(c.cfg.Proc, "pressure/memory"), r.pressure(c.cfg.Proc, "pressure/io")
	m.Network = r.interfaces(c.cfg.Proc, "self/net/dev")
	m.MaxPID = r.value(c.cfg.Proc, "sys/kernel/pid_max")
	m.Pids = Pids{Current: tasks(r, c.cfg.Proc), Limit: m.MaxPID}
	m.IO.Devices = disks(r, c.cfg.Proc)
	machineCPU(r, c.cfg.Proc, &m) // last: its rate ends now
	if t, ok := c.cfg.Hierarchies.cpuTime(r, "/"); ok {
		m.CPU.Usage = t
	}
	return m, nil
}

// machineMemory reads meminfo.
func machineMemory(r *reader, proc string, m *Machine) error {
	var free, swapTotal, swapFree uint64
	r.counts(map[string]*uint64{
		"MemTotal": &m.Total, "MemFree": &free, "MemAvailable": &m.Available, "SwapTotal": &swapTotal, "SwapFree": &swapFree,
		"Cached": &m.Memory.Cache, "Mapped": &m.Memory.Mapped, "AnonPages": &m.Memory.RSS,
	}, proc, "meminfo")
	if m.Total == 0 {
		return fmt.Errorf("%s has no memory values", filepath.Join(proc, "meminfo"))
	}
	m.Memory.Usage, m.Memory.Limit = m.Total-min(free, m.Total), m.Total
	m.Swap = &Swap{Usage: swapTotal - min(swapFree, swapTotal), Limit: swapTotal}
	return nil
}

// machineCPU reads the sum of all processors, and when the machine was booted.
func machineCPU(r *reader, proc string, m *Machine) {
	for line := range lines(r.bytes(proc, "stat")) {
		f := strings.Fields(string(line))
		switch {
		case len(f) >= 9 && f[0] == "cpu":
			tick := func(fields ...int) (t time.Duration) {
				for _, i := range fields {
					t += time.Duration(number(f[i])) * (time.Second / ticks)
				}
				return t
			}
			m.CPU.User, m.CPU.System = tick(1, 2), tick(3, 6, 7)
			m.CPU.Usage = m.CPU.User + m.CPU.System
		case len(f) == 2 && f[0] == "btime":
			m.Boot = time.Unix(int64(number(f[1])), 0).UTC()
		}
	}
}

// tasks returns how many there are, from "0.1 0.2 0.3 2/345 6789".
func tasks(r *reader, proc string) uint64 {
	f := strings.Fields(string(r.bytes(proc, "loadavg")))
	if len(f) < 4 {
		return 0
	}
	_, all, _ := strings.Cut(f[3], "/")
	return number(all)
}

// sector is the unit of diskstats.
const sector = 512

// disks reads what whole devices and partitions did; those that did nothing are left out.
func disks(r *reader, proc string) []DeviceIO {
	var all []DeviceIO
	for line := range lines(r.bytes(proc, "diskstats")) {
		f := strings.Fields(string(line))
		if len(f) < 11 {
			continue
		}
		d := DeviceIO{
			Major: number(f[0]), Minor: number(f[1]), Reads: number(f[3]), ReadBytes: sector * number(f[5]),
			Writes: number(f[7]), WriteBytes: sector * number(f[9]),
		}
		if d.Reads+d.Writes > 0 {
			all = append(all, d)
		}
	}
	return all
}

// agent reads what this process uses. Its cgroup is often that of others, too.
func (c *Collector) agent(r *reader, now time.Time) *Usage {
	text := string(r.bytes(c.cfg.Proc, "self/stat"))
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return nil
	}
	tick := func(i int) time.Duration { return time.Duration(number(f[i])) * (time.Second / ticks) }
	u := &Usage{Time: now, CPU: CPU{User: tick(11), System: tick(12)}, Pids: Pids{Current: number(f[17])}}
	u.CPU.Usage = u.CPU.User + u.CPU.System
	u.Memory.Faults, u.Memory.MajorFaults = number(f[7])+number(f[9]), number(f[9])
	r.counts(map[string]*uint64{"VmRSS": &u.Memory.Usage, "RssAnon": &u.Memory.RSS, "RssFile": &u.Memory.Mapped}, c.cfg.Proc, "self/status")
	u.Memory.WorkingSet = u.Memory.Usage
	return u
}

// ReadFilesystem returns the state of the file system that a path is on.
func ReadFilesystem(path string, now time.Time) (Filesystem, error) {
	var st unix.Statfs_t
	var file unix.Stat_t
	if err := unix.Statfs(path, &st); err != nil {
		return Filesystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if err := unix.Stat(path, &file); err != nil {
		return Filesystem{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	block := uint64(st.Frsize)
	return Filesystem{
		Time: now, Device: file.Dev,
		Capacity: st.Blocks * block, Available: st.Bavail * block, Used: (st.Blocks - min(st.Bfree, st.Blocks)) * block,
		Inodes: st.Files, InodesFree: st.Ffree,
	}, nil
}
