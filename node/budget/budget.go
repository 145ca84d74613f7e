// Package budget keeps monopod to a budget of memory and processor time, and reads what its processes cost the machine while
// nothing happens: memory, wake-ups, and bytes written to disk.
//
// It owns the cgroup of the agent, and says where the shims are to be, which must not be in it. It keeps nothing, and has no
// goroutines.
package budget

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Cost is what processes have cost since they were started. What ended threads have cost is only known of WrittenBytes.
type Cost struct {
	Processes int `json:"processes"`
	// ResidentBytes is memory, pages that are shared counted for each.
	ResidentBytes int64 `json:"residentBytes"`
	// WakeUps are voluntary context switches: how often a thread has waited for something that came.
	WakeUps int64 `json:"wakeUps"`
	// Preemptions are involuntary ones.
	Preemptions int64 `json:"preemptions"`
	// WrittenBytes are those that were sent on their way to a disk.
	WrittenBytes int64 `json:"writtenBytes"`
	// Running is the sum of the ages of the processes.
	Running time.Duration `json:"runningNanoseconds"`
}

// PerHour is what all processes together come to in an hour, of a count of theirs.
func (c *Cost) PerHour(count int64) float64 {
	if c.Running <= 0 {
		return 0
	}
	return float64(count) / c.Running.Hours() * float64(c.Processes)
}

// ticks is how many there are in a second, in /proc on every architecture that Go has.
const ticks = 100

// Add adds a process, since is the time since the boot. One that has ended adds nothing.
func (c *Cost) Add(proc string, pid int, since time.Duration) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return
	}
	c.Processes++
	if name := bytes.LastIndex(stat, []byte(") ")); name >= 0 {
		if f := strings.Fields(string(stat[name+2:])); len(f) > 19 {
			c.Running += max(0, since-time.Duration(number(f[19]))*time.Second/ticks)
		}
	}
	c.ResidentBytes += field(filepath.Join(dir, "status"), "VmRSS") << 10
	c.WrittenBytes += field(filepath.Join(dir, "io"), "write_bytes") - field(filepath.Join(dir, "io"), "cancelled_write_bytes")
	threads, _ := filepath.Glob(filepath.Join(dir, "task", "*", "status")) // the pattern is right
	for _, t := range threads {
		c.WakeUps += field(t, "voluntary_ctxt_switches")
		c.Preemptions += field(t, "nonvoluntary_ctxt_switches")
	}
}

// field is the number behind a name in a file of lines; 0: there is none.
func field(file, name string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				return number(f[0])
			}
		}
	}
	return 0
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Children are the processes whose command line begins with a program of that name and has one of the arguments.
func Children(proc, program, argument string) []int {
	var pids []int
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline")) // the pattern is right
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if filepath.Base(args[0]) != program || !strings.Contains(strings.Join(args[1:], "\x00"), argument) {
			continue
		}
		if pid := int(number(filepath.Base(filepath.Dir(f)))); pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
