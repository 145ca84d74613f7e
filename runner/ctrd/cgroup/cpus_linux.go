package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/ctrd/record"
	"monopod/runner/spec/cpuset"
	"monopod/runner/spec/limits"
)

// CPUs assigns exclusive CPUs to containers, and keeps other containers off them. The records of the containers hold the
// assignments; this type keeps only those of containers without a record yet.
type CPUs struct {
	topology []cpuset.CPU
	Online   cpuset.Set
	Reserved cpuset.Set

	mu sync.Mutex
	// pending are CPUs by the id of a container without a record. Guarded by mu.
	pending map[string]cpuset.Set
}

// ReadCPUs reads the topology of the machine.
func ReadCPUs(root, reserved string) (*CPUs, error) {
	text, err := os.ReadFile(filepath.Join(root, "online"))
	if err != nil {
		return nil, err
	}
	c := &CPUs{pending: map[string]cpuset.Set{}}
	if c.Online, err = cpuset.Parse(string(text)); err != nil {
		return nil, err
	}
	if c.Reserved, err = cpuset.Parse(reserved); err != nil {
		return nil, err
	}
	for _, id := range c.Online {
		at := func(name string) int {
			b, err := os.ReadFile(filepath.Join(root, "cpu"+strconv.Itoa(id), "topology", name))
			n, nerr := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil || nerr != nil {
				return id // without topology, each CPU is a core of its own
			}
			return n
		}
		c.topology = append(c.topology, cpuset.CPU{ID: id, Core: at("core_id"), Socket: at("physical_package_id")})
	}
	return c, nil
}

// ErrNoCPUs reports that a container requests more exclusive CPUs than are free.
var ErrNoCPUs = errors.New("not enough free CPUs")

// AssignCPUs chooses the CPUs of a new container: those of the container that it replaces if their number is right, else free
// ones. The caller calls release once the record names them, or when creation fails.
func (r *Pods) AssignCPUs(id string, sb *record.Sandbox, pod *corev1.Pod, container string) (set cpuset.Set, release func(), err error) {
	if !r.Host.Enforce.StaticCPUs {
		return nil, func() {}, nil
	}
	n := limits.WholeCPUs(pod, container)
	if n == 0 {
		return nil, func() {}, nil
	}
	c := r.Cpus
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.Reserved
	var former cpuset.Set
	for _, rec := range r.Index.All() {
		has := exclusive(rec)
		if rec.Meta.SandboxID == sb.ID && rec.Meta.Name == container {
			former = has // both never run at the same time
			continue
		}
		taken = taken.Union(has)
	}
	for _, set := range c.pending {
		taken = taken.Union(set)
	}
	free := c.Online.Without(taken)
	if len(former) == n && len(former.Without(free)) == 0 {
		set = former
	} else {
		var ok bool
		if set, ok = cpuset.Pick(c.topology, free, n); !ok {
			return nil, nil, fmt.Errorf("%w: %d are requested, %q are available", ErrNoCPUs, n, free.String())
		}
	}
	c.pending[id] = set
	return set, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, id)
	}, nil
}

// exclusive returns the CPUs that a container has exclusively while it may run.
func exclusive(rec *record.Container) cpuset.Set {
	if rec.Meta.Exit != nil {
		return nil
	}
	set, err := cpuset.Parse(rec.Meta.CPUs)
	if err != nil {
		return nil
	}
	return set
}

// SharedCPUs returns the CPUs that no container has exclusively; nil if that is all of them.
func (r *Pods) SharedCPUs() cpuset.Set {
	r.Cpus.mu.Lock()
	defer r.Cpus.mu.Unlock()
	var taken cpuset.Set
	for _, rec := range r.Index.All() {
		taken = taken.Union(exclusive(rec))
	}
	for _, set := range r.Cpus.pending {
		taken = taken.Union(set)
	}
	if len(taken) == 0 {
		return nil
	}
	return r.Cpus.Online.Without(taken)
}

// CpusOf returns the CPUs that a container may use, for its spec.
func (r *Pods) CpusOf(own cpuset.Set) (list string, exclusive bool) {
	if len(own) > 0 {
		return own.String(), true
	}
	return r.SharedCPUs().String(), false
}

// ShareCPUs updates the CPUs of all containers that share: without those that are exclusive, with those that have become free. It
// does nothing while no CPU is, or was, exclusive.
func (r *Pods) ShareCPUs() {
	defer r.locks.Lock("cpus")()
	shared := r.SharedCPUs()
	if shared == nil {
		shared = r.Cpus.Online
	}
	for _, rec := range r.Index.All() {
		if rec.Meta.CPUs != "" || rec.Meta.Exit != nil {
			continue
		}
		if err := r.Cgroups.setCPUs(r.CgroupOf(rec), shared); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Log.Warn("change the CPUs of a container", "container", rec.Meta.Name, "pod", rec.Meta.Key.String(), "err", err)
		}
	}
}

// setCPUs sets the CPUs that a cgroup may use.
func (c Tree) setCPUs(cgroup string, set cpuset.Set) error {
	root := UnifiedRoot
	if c.Controllers != nil {
		root = c.Controllers["cpuset"]
	}
	return writeFile(filepath.Join(root, cgroup, "cpuset.cpus"), set.String())
}
