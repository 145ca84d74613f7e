package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/runner/spec/limits"
)

// unlimited is how v1 writes "no limit".
const unlimited = -1

// make creates a cgroup whose values can be set, and enables the controllers for its children.
func (c Tree) make(cgroup string) error {
	if unit, ok := c.slice(cgroup); ok {
		if err := c.Slices.start(unit); err != nil {
			return err
		}
	}
	if c.Controllers == nil {
		return makeUnified(UnifiedRoot, cgroup)
	}
	for _, name := range []string{"cpu", "memory", "pids", "hugetlb"} {
		if root, ok := c.Controllers[name]; ok {
			if err := os.MkdirAll(filepath.Join(root, cgroup), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeUnified creates a cgroup of v2. A controller exists only where the parent has enabled it for its children.
func makeUnified(root, cgroup string) error {
	dir := root
	for name := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		enableControllers(dir)
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	enableControllers(dir)
	return nil
}

// enableControllers enables the available controllers. Errors show when a value is set.
func enableControllers(dir string) {
	there, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	on, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	enabled := map[string]bool{}
	for name := range strings.FieldsSeq(string(on)) {
		enabled[name] = true
	}
	for name := range strings.FieldsSeq(string(there)) {
		if !enabled[name] {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		}
	}
}

// exists reports whether a cgroup exists.
func (c Tree) exists(cgroup string) bool {
	root := UnifiedRoot
	if c.Controllers != nil {
		root = c.Controllers["cpu"]
	}
	_, err := os.Stat(filepath.Join(root, cgroup))
	return err == nil
}

// set writes the values of a cgroup. It refuses a memory limit below the memory in use.
func (c Tree) set(cgroup string, v limits.Values) error {
	if v.Memory != nil && c.Controllers == nil {
		if err := makeRoom(filepath.Join(UnifiedRoot, cgroup), *v.Memory); err != nil {
			return err
		}
	}
	if unit, ok := c.slice(cgroup); ok {
		if err := c.Slices.set(unit, v); err != nil {
			return err
		}
	}
	if c.Controllers == nil {
		return setUnified(filepath.Join(UnifiedRoot, cgroup), v)
	}
	return c.setControllers(cgroup, v)
}

func setUnified(dir string, v limits.Values) error {
	quota := "max"
	if v.Quota != nil {
		quota = strconv.FormatInt(*v.Quota, 10)
	}
	w := cgroupWriter{dir: dir}
	w.write("cpu.weight", strconv.FormatUint(CPUWeight(v.Shares), 10))
	w.write("cpu.max", quota+" "+strconv.FormatUint(v.Period, 10))
	w.write("memory.max", orMax(v.Memory))
	w.write("memory.min", strconv.FormatInt(v.MemoryMin, 10))
	w.write("memory.low", strconv.FormatInt(v.MemoryLow, 10))
	w.write("pids.max", orMax(v.Pids))
	for size, n := range v.Hugepages {
		w.write("hugetlb."+size+".max", strconv.FormatInt(n, 10))
	}
	return w.err()
}

// CPUWeight is the kubelet's conversion for cgroups above containers.
func CPUWeight(shares uint64) uint64 { return 1 + (max(shares, 2)-2)*9999/262142 }

func orMax(n *int64) string {
	if n == nil {
		return "max"
	}
	return strconv.FormatInt(*n, 10)
}

func (c Tree) setControllers(cgroup string, v limits.Values) error {
	at := func(controller string) *cgroupWriter {
		root, ok := c.Controllers[controller]
		if !ok {
			return &cgroupWriter{}
		}
		return &cgroupWriter{dir: filepath.Join(root, cgroup)}
	}
	cpu := at("cpu")
	cpu.write("cpu.shares", strconv.FormatUint(v.Shares, 10))
	period := strconv.FormatUint(v.Period, 10)
	if cpu.read("cpu.cfs_period_us") != period {
		cpu.write("cpu.cfs_quota_us", strconv.Itoa(unlimited)) // both values must be consistent at any moment
		cpu.write("cpu.cfs_period_us", period)
	}
	cpu.write("cpu.cfs_quota_us", OrUnlimited(v.Quota))
	memory := at("memory")
	memory.write("memory.limit_in_bytes", OrUnlimited(v.Memory))
	pids := at("pids")
	pids.write("pids.max", orMax(v.Pids))
	huge := at("hugetlb")
	for size, n := range v.Hugepages {
		huge.write("hugetlb."+size+".limit_in_bytes", strconv.FormatInt(n, 10))
	}
	return errors.Join(cpu.err(), inUse(memory.err(), memory, v.Memory), pids.err(), huge.err())
}

// OrUnlimited returns a limit as v1 writes it; nil is unlimited.
func OrUnlimited(n *int64) string {
	if n == nil {
		return strconv.Itoa(unlimited)
	}
	return strconv.FormatInt(*n, 10)
}

// inUse explains that v1 refuses a limit below the memory in use.
func inUse(err error, w *cgroupWriter, limit *int64) error {
	if err == nil || limit == nil || *limit < 0 {
		return err
	}
	used, unknown := strconv.ParseInt(w.read("memory.usage_in_bytes"), 10, 64)
	if unknown == nil && (used > *limit || errors.Is(err, unix.EBUSY)) {
		return fmt.Errorf("%w: %w", belowUsage(*limit, used), err)
	}
	return err
}

// belowUsage is the error of a limit that would take away memory in use, as a kubelet says it.
func belowUsage(limit, used int64) error {
	return fmt.Errorf("memory limit (%d) below current usage (%d)", limit, used)
}

// cgroupWriter writes the files of one cgroup; without a directory it writes nothing.
type cgroupWriter struct {
	dir  string
	errs []error
}

func (w *cgroupWriter) read(name string) string {
	if w.dir == "" {
		return ""
	}
	b, _ := os.ReadFile(filepath.Join(w.dir, name))
	return strings.TrimSpace(string(b))
}

// write sets a value that differs. A controller that the kernel does not have is only an error if there is something to limit.
func (w *cgroupWriter) write(name, value string) {
	if w.dir == "" {
		return
	}
	path := filepath.Join(w.dir, name)
	old, err := os.ReadFile(path)
	has := strings.TrimSpace(string(old))
	if err == nil && (has == value || value == strconv.Itoa(unlimited) && LimitOf(has) == nil) {
		return
	}
	if errors.Is(err, fs.ErrNotExist) && isNoLimit(value) {
		return
	}
	if err := writeFile(path, value); err != nil {
		w.errs = append(w.errs, err)
	}
}

// isNoLimit reports whether a value is what a cgroup has without the controller.
func isNoLimit(value string) bool {
	return value == "max" || value == "0" || value == strconv.Itoa(unlimited) || strings.HasPrefix(value, "max ")
}

// writeFile writes to an existing file.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (w *cgroupWriter) err() error { return errors.Join(w.errs...) }

// Values reads the limits of a cgroup that can be raised.
func (c Tree) Values(cgroup string) limits.Values {
	v := limits.Values{}
	if c.Controllers == nil {
		w := cgroupWriter{dir: filepath.Join(UnifiedRoot, cgroup)}
		quota, period, _ := strings.Cut(w.read("cpu.max"), " ")
		v.Quota, v.Memory, v.Pids = LimitOf(quota), LimitOf(w.read("memory.max")), LimitOf(w.read("pids.max"))
		v.Period, _ = strconv.ParseUint(period, 10, 64)
		return v
	}
	read := func(controller, name string) string {
		root, ok := c.Controllers[controller]
		if !ok {
			return ""
		}
		w := cgroupWriter{dir: filepath.Join(root, cgroup)}
		return w.read(name)
	}
	v.Quota, v.Memory, v.Pids = LimitOf(read("cpu", "cpu.cfs_quota_us")), LimitOf(read("memory", "memory.limit_in_bytes")), LimitOf(read("pids", "pids.max"))
	v.Period, _ = strconv.ParseUint(read("cpu", "cpu.cfs_period_us"), 10, 64)
	return v
}

// noLimitFrom is the smallest memory limit of v1 that stands for none.
const noLimitFrom = 1 << 62

// LimitOf parses a limit; nil is unlimited.
func LimitOf(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n >= noLimitFrom {
		return nil
	}
	return &n
}

// makeRoom makes sure that a memory limit of v2 does not kill a process: it reclaims memory, and refuses the limit if that is not
// enough. (The kernel would kill; v1 refuses by itself.)
func makeRoom(dir string, limit int64) error {
	w := cgroupWriter{dir: dir}
	used := func() int64 {
		n, err := strconv.ParseInt(w.read("memory.current"), 10, 64)
		if err != nil {
			return 0 // memory is not accounted here
		}
		return n
	}
	now := used()
	// The kernel takes minutes to find out that it cannot reclaim anything.
	if now > limit && now-cached(w.read("memory.stat")) <= limit {
		_ = writeFile(filepath.Join(dir, "memory.reclaim"), strconv.FormatInt(now-limit, 10)) // the check below reads what is in use afterwards
		now = used()
	}
	if now > limit {
		return belowUsage(limit, now)
	}
	return nil
}

// cached returns how much of a cgroup's memory is page cache, by its memory.stat.
func cached(stat string) int64 {
	var sum int64
	for line := range strings.Lines(stat) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "active_file", "inactive_file":
			n, err := strconv.ParseInt(value, 10, 64)
			if err == nil {
				sum += n
			}
		}
	}
	return sum
}
