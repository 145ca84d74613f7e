package budget

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are what the cgroup of the agent may use; zero: as much as there is.
type Limits struct {
	// Memory is in bytes, MilliCPU in thousandths of a processor.
	Memory   int64 `json:"memoryBytes,omitempty"`
	MilliCPU int64 `json:"milliCPU,omitempty"`
}

// Cgroup is where the agent keeps itself to its budget.
type Cgroup struct {
	// Name is as in /proc/self/cgroup; empty: the agent is where it was started.
	Name   string
	Limits Limits
	// Shims are the directories, one for each hierarchy, in which those processes are to be born that look after containers.
	Shims []string
	// OOMKills is how many processes the kernel has killed in it for lack of memory before this one came.
	OOMKills int64
}

// agentCgroup is that of the agent below the one that a service manager has delegated to it.
const agentCgroup = "agent"

// Names are the cgroups that there may be for the budget of an instance whose pods are in root: that of the agent, and that of the shims of a service.
func Names(root string) (agent, shims string) { return root + "-agent", root + "-shims" }

// cpuPeriod is how often a quota of processor time is handed out, in microseconds.
const cpuPeriod = 100_000

// System is where cgroups are seen; tests replace it.
type System struct {
	// Proc is where proc is mounted, PID the agent.
	Proc string
	PID  int
	// Delegated reports whether the manager of this directory's cgroup delegates everything below it to us.
	Delegated func(dir string) bool
}

// ThisProcess is the System of this process.
func ThisProcess() System {
	return System{Proc: "/proc", PID: os.Getpid(), Delegated: func(dir string) bool {
		value := make([]byte, 1)
		n, err := unix.Getxattr(dir, "trusted.delegate", value) // systemd says it so
		return err == nil && n == 1 && value[0] == '1'
	}}
}

// hierarchy is a mounted hierarchy of cgroups, and where in it the agent is.
type hierarchy struct {
	// controller is memory or cpu; empty: it is the unified one, or v1's own of systemd.
	controller  string
	mount, root string
	own         string
}

// dir is the directory of a cgroup. In a container the mount may show a part of the hierarchy.
func (h *hierarchy) dir(cgroup string) string {
	if rest, ok := strings.CutPrefix(cgroup, h.root); ok && (h.root == "/" || rest == "" || rest[0] == '/') {
		cgroup = rest
	}
	return filepath.Join(h.mount, cgroup)
}

// hierarchies are those of memory and processors, or the unified one alone, and those in which a manager of services tells
// whom it delegates to.
func (s System) hierarchies() (limits, managed []hierarchy, err error) {
	mounts, err := os.ReadFile(filepath.Join(s.Proc, "self", "mountinfo"))
	if err != nil {
		return nil, nil, err
	}
	own, err := s.membership()
	if err != nil {
		return nil, nil, err
	}
	var unified []hierarchy
	for line := range strings.Lines(string(mounts)) {
		head, tail, _ := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if len(h) < 5 || len(t) < 3 {
			continue
		}
		for _, name := range controllersOf(t[0], t[2]) {
			at := hierarchy{controller: name, mount: h[4], root: h[3], own: own[name]}
			switch {
			case at.own == "":
			case name == "" && len(unified) == 0:
				unified = append(unified, at)
			case name == "name=systemd":
				managed = append(managed, at)
			case name != "" && !slices.ContainsFunc(limits, func(o hierarchy) bool { return o.controller == name }):
				limits = append(limits, at)
			}
		}
	}
	managed = append(managed, unified...)
	if len(limits) == 0 {
		limits = unified
	}
	if len(limits) == 0 {
		return nil, nil, errors.New("no cgroups are mounted")
	}
	return limits, managed, nil
}

// controllersOf are the controllers that matter of a mount of cgroups, "" that of the unified hierarchy.
func controllersOf(fstype, options string) []string {
	switch fstype {
	case "cgroup2":
		return []string{""}
	case "cgroup":
		return slices.DeleteFunc(strings.Split(options, ","), func(o string) bool { return o != "memory" && o != "cpu" && o != "name=systemd" })
	}
	return nil
}

// membership is in which cgroup the agent is, by controller.
func (s System) membership() (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join(s.Proc, "self", "cgroup"))
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for name := range strings.SplitSeq(f[1], ",") {
				own[name] = f[2]
			}
		}
	}
	return own, nil
}

// unit is the cgroup that a manager of services has delegated to the agent; empty: there is none.
func (s System) unit(managed []hierarchy) string {
	for _, h := range managed {
		for _, name := range []string{h.own, path.Dir(h.own)} { // below it after a start by DelegateSubgroup=
			if name != "/" && (name == h.own || path.Base(h.own) == agentCgroup) && s.Delegated(h.dir(name)) {
				return name
			}
		}
	}
	return ""
}

// Enter moves the agent into a cgroup of its own and limits that. Without a name it is one below that of the service it is, or
// else of Names(root). What could be done is in the answer also when there is an error: the agent works without a budget, too.
func (s System) Enter(name, root string, l Limits) (Cgroup, error) {
	fallback, shims := Names(root)
	limits, managed, err := s.hierarchies()
	if err != nil {
		return Cgroup{}, err
	}
	unit := s.unit(managed)
	switch {
	case name != "":
	case unit != "":
		name = path.Join(unit, agentCgroup)
	default:
		name = fallback
	}
	if limits[0].controller == "" {
		return s.enterUnified(&limits[0], unit, name, shims, l)
	}
	return s.enterControllers(limits, name, l)
}

// enterControllers is Enter for v1. Shims are where the agent has come from.
func (s System) enterControllers(all []hierarchy, name string, l Limits) (Cgroup, error) {
	c := Cgroup{}
	var errs []error
	for i := range all {
		h := &all[i]
		dir, limit := h.dir(name), Limits{}
		if h.controller == "memory" {
			c.OOMKills, limit.Memory = renew(dir, "memory.oom_control"), l.Memory
		} else {
			limit.MilliCPU = l.MilliCPU
		}
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = s.join(dir)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.Name = name
		c.Shims = append(c.Shims, h.dir(parentOf(h.own, name)))
		if err = limitControllers(dir, h.controller, limit); err != nil {
			errs = append(errs, err)
			continue
		}
		c.Limits.Memory += limit.Memory
		c.Limits.MilliCPU += limit.MilliCPU
	}
	return c, errors.Join(errs...)
}

// parentOf is where the agent has come from: above its own cgroup when it was started there.
func parentOf(own, name string) string {
	if own == name {
		return path.Dir(name)
	}
	return own
}

// enterUnified is Enter for v2, where a cgroup has either processes or limits for those below it: a delegated one is cleared of
// processes first. Shims cannot stay below it: systemd could not start the service again while its cgroup is there and has limits for those below.
func (s System) enterUnified(h *hierarchy, unit, name, outside string, l Limits) (Cgroup, error) {
	dir, shims := h.dir(name), h.dir(parentOf(h.own, name))
	below := unit != "" && path.Dir(name) == unit
	if below {
		shims = h.dir(outside)
		if err := os.MkdirAll(shims, 0o755); err != nil {
			return Cgroup{}, err
		}
	}
	kills := renew(dir, "memory.events")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Cgroup{}, err
	}
	if below {
		if err := s.clear(h.dir(unit), shims); err != nil {
			return Cgroup{}, err
		}
	} else if err := enableAbove(h.mount, dir); err != nil { // then the agent stays where it is
		return Cgroup{}, err
	}
	if err := s.join(dir); err != nil {
		return Cgroup{}, err
	}
	c := Cgroup{Name: name, Shims: []string{shims}, OOMKills: kills}
	err := enableAbove(filepath.Dir(dir), dir)
	if err == nil {
		err = limitUnified(dir, l)
	}
	if err == nil {
		c.Limits = l
	}
	return c, err
}

// clearRounds is how often to check for processes that appeared while others were moved.
const clearRounds = 10

// clear moves the other processes of a cgroup into another: shims of an earlier monopod, which had no budget.
func (s System) clear(from, to string) error {
	for range clearRounds {
		b, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
		if err != nil {
			return err
		}
		moved := false
		for pid := range strings.FieldsSeq(string(b)) {
			if pid == strconv.Itoa(s.PID) {
				continue
			}
			moved = true
			if err := put(to, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !moved {
			return nil
		}
	}
	return fmt.Errorf("processes appear in %s faster than they can be moved", from)
}

// enableAbove has the cgroups from top down to the one above dir limit memory and processors of those below them.
func enableAbove(top, dir string) error {
	var levels []string
	for d := filepath.Dir(dir); len(d) >= len(top); d = filepath.Dir(d) {
		levels = append(levels, d)
	}
	for _, d := range slices.Backward(levels) {
		enabled, err := os.ReadFile(filepath.Join(d, "cgroup.subtree_control"))
		if err != nil {
			return err
		}
		for _, c := range []string{"memory", "cpu"} {
			if slices.Contains(strings.Fields(string(enabled)), c) {
				continue
			}
			if err := put(d, "cgroup.subtree_control", "+"+c); err != nil {
				return fmt.Errorf("controller %s: %w", c, err)
			}
		}
	}
	return nil
}

// join moves the agent.
func (s System) join(dir string) error { return put(dir, "cgroup.procs", strconv.Itoa(s.PID)) }

func limitUnified(dir string, l Limits) error {
	memory, cpu := "max", "max"
	if l.Memory > 0 {
		memory = strconv.FormatInt(l.Memory, 10)
	}
	if l.MilliCPU > 0 {
		cpu = strconv.FormatInt(l.MilliCPU*cpuPeriod/1000, 10)
	}
	return errors.Join(put(dir, "memory.max", memory), put(dir, "cpu.max", cpu+" "+strconv.Itoa(cpuPeriod)))
}

func limitControllers(dir, controller string, l Limits) error {
	if controller == "memory" {
		if l.Memory == 0 {
			l.Memory = -1
		}
		return put(dir, "memory.limit_in_bytes", strconv.FormatInt(l.Memory, 10))
	}
	quota := int64(-1)
	if l.MilliCPU > 0 {
		quota = l.MilliCPU * cpuPeriod / 1000
	}
	return errors.Join(put(dir, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), put(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
}

// put writes to a file of a cgroup, which is there.
func put(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// renew reads how many processes were killed in a cgroup for lack of memory, and has it forget that.
func renew(dir, events string) (kills int64) {
	b, err := os.ReadFile(filepath.Join(dir, events))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if n, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			kills = number(string(bytes.TrimSpace(n)))
		}
	}
	_ = os.Remove(dir) // unless somebody is still in it
	return kills
}

// Leave removes cgroups of an agent that has ended, unless they have processes.
func (s System) Leave(names ...string) error {
	limits, _, _ := s.hierarchies() // where there are none, there is nothing to be removed
	var errs []error
	for i := range limits {
		for _, name := range names {
			if err := unix.Rmdir(limits[i].dir(name)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
				errs = append(errs, fmt.Errorf("remove the cgroup %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}
