package stats

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
)

// Hierarchies are where cgroups are mounted.
type Hierarchies struct {
	// Unified is the mount point of v2; empty: there is none. Beside v1 it has pressure only, or nothing.
	Unified string
	// Controllers are the mount points of v1's controllers by name; nil where there is only the unified hierarchy.
	Controllers map[string]string
}

// FindHierarchies looks where cgroups are mounted.
func FindHierarchies() (Hierarchies, error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return Hierarchies{}, fmt.Errorf("read mounts: %w", err)
	}
	var h Hierarchies
	for _, i := range infos {
		switch {
		case i.FSType == "cgroup2" && h.Unified == "":
			h.Unified = i.Mountpoint
		case i.FSType == "cgroup":
			h.add(i)
		}
	}
	return h, nil
}

// add takes down which controllers a mount of v1 has. One mounted twice is the same one.
func (h *Hierarchies) add(i *mountinfo.Info) {
	for name := range strings.SplitSeq(i.VFSOptions, ",") {
		switch name {
		case "cpu", "cpuacct", "memory", "pids", "blkio":
			if h.Controllers == nil {
				h.Controllers = map[string]string{}
			}
			if h.Controllers[name] == "" {
				h.Controllers[name] = i.Mountpoint
			}
		}
	}
}

// read returns what a cgroup uses; ok is false when there is none.
func (h Hierarchies) read(r *reader, cgroup string, now time.Time) (u Usage, ok bool) {
	u.Time = now
	if h.Controllers == nil {
		ok = readUnified(r, filepath.Join(h.Unified, cgroup), &u)
	} else {
		ok = h.readControllers(r, cgroup, &u)
	}
	if !ok {
		return Usage{}, false
	}
	if h.Unified != "" {
		dir := filepath.Join(h.Unified, cgroup)
		u.CPU.PSI, u.Memory.PSI, u.IO.PSI = r.pressure(dir, "cpu.pressure"), r.pressure(dir, "memory.pressure"), r.pressure(dir, "io.pressure")
	}
	u.Memory.WorkingSet = min(u.Memory.WorkingSet, u.Memory.Usage)
	return u, true
}

// cpuTime returns the processor time that a cgroup has used; ok is false when there is none.
func (h Hierarchies) cpuTime(r *reader, cgroup string) (t time.Duration, ok bool) {
	if h.Controllers != nil {
		n, ok := r.number(h.Controllers["cpuacct"], cgroup, "cpuacct.usage")
		return time.Duration(n), ok
	}
	var used uint64
	ok = r.counts(map[string]*uint64{"usage_usec": &used}, h.Unified, cgroup, "cpu.stat")
	return micros(used), ok
}

// process returns one that is in a cgroup or below it; 0: there is none.
func (h Hierarchies) process(r *reader, cgroup string) int {
	root := h.Unified
	if h.Controllers != nil {
		root = h.Controllers["memory"]
	}
	return processIn(r, filepath.Join(root, cgroup), 0)
}

// maxNesting bounds how deep below the cgroup of a container its processes are searched.
const maxNesting = 8

func processIn(r *reader, dir string, depth int) int {
	first, _, _ := bytes.Cut(r.bytes(dir, "cgroup.procs"), []byte{'\n'})
	if pid, ok := parse(first); ok && pid > 0 {
		return int(pid)
	}
	if depth == maxNesting {
		return 0
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if pid := processIn(r, filepath.Join(dir, e.Name()), depth+1); pid > 0 {
			return pid
		}
	}
	return 0
}
