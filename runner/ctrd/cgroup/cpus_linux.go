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
	"monopod/runner/spec"
)

// CPUs gives processors to containers that have them for themselves, and keeps the others off them. Who has which is
// in the labels of the containers; only those of containers on their way into being are kept here.
type CPUs struct {
	topology []spec.CPU
	Online   spec.CPUSet
	Reserved spec.CPUSet

	mu sync.Mutex
	// coming are processors by the id of a container without a record. Guarded by mu.
	coming map[string]spec.CPUSet
}

// ReadCPUs reads which processors there are.
func ReadCPUs(root, reserved string) (*CPUs, error) {
	text, err := os.ReadFile(filepath.Join(root, "online"))
	if err != nil {
		return nil, err
	}
	c := &CPUs{coming: map[string]spec.CPUSet{}}
	if c.Online, err = spec.ParseCPUSet(string(text)); err != nil {
		return nil, err
	}
	if c.Reserved, err = spec.ParseCPUSet(reserved); err != nil {
		return nil, err
	}
	for _, id := range c.Online {
		at := func(name string) int {
			b, err := os.ReadFile(filepath.Join(root, "cpu"+strconv.Itoa(id), "topology", name))
			n, nerr := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil || nerr != nil {
				return id // where nothing is known, each is a core of its own
			}
			return n
		}
		c.topology = append(c.topology, spec.CPU{ID: id, Core: at("core_id"), Socket: at("physical_package_id")})
	}
	return c, nil
}

// ErrNoCPUs reports that a container requests more exclusive CPUs than are free.
var ErrNoCPUs = errors.New("not enough processors that are not taken")

// AssignCPUs chooses the processors of a new container: those of the instance that it takes the place of, if they are
// as many, else free ones. release gives them back, or takes them out of the list when the record says so.
func (r *Pods) AssignCPUs(id string, sb *record.Sandbox, pod *corev1.Pod, container string) (set spec.CPUSet, release func(), err error) {
	if !r.Host.Enforce.StaticCPUs {
		return nil, func() {}, nil
	}
	n := spec.WholeCPUs(pod, container)
	if n == 0 {
		return nil, func() {}, nil
	}
	c := r.Cpus
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.Reserved
	var former spec.CPUSet
	for _, rec := range r.Index.All() {
		has := exclusive(rec)
		if rec.Meta.SandboxID == sb.ID && rec.Meta.Name == container {
			former = has // both never run at once
			continue
		}
		taken = taken.Union(has)
	}
	for _, set := range c.coming {
		taken = taken.Union(set)
	}
	free := c.Online.Without(taken)
	if len(former) == n && len(former.Without(free)) == 0 {
		set = former
	} else {
		var ok bool
		if set, ok = spec.PickCPUs(c.topology, free, n); !ok {
			return nil, nil, fmt.Errorf("%w: %d are wanted, %q are left", ErrNoCPUs, n, free.String())
		}
	}
	c.coming[id] = set
	return set, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.coming, id)
	}, nil
}

// exclusive are the processors that a container has for itself as long as it may run.
func exclusive(rec *record.Container) spec.CPUSet {
	if rec.Meta.Exit != nil {
		return nil
	}
	set, err := spec.ParseCPUSet(rec.Meta.CPUs)
	if err != nil {
		return nil
	}
	return set
}

// SharedCPUs are those that nobody has for itself; nil when that is so of all.
func (r *Pods) SharedCPUs() spec.CPUSet {
	r.Cpus.mu.Lock()
	defer r.Cpus.mu.Unlock()
	var taken spec.CPUSet
	for _, rec := range r.Index.All() {
		taken = taken.Union(exclusive(rec))
	}
	for _, set := range r.Cpus.coming {
		taken = taken.Union(set)
	}
	if len(taken) == 0 {
		return nil
	}
	return r.Cpus.Online.Without(taken)
}

// CpusOf tells for the spec of a container which processors it may use.
func (r *Pods) CpusOf(own spec.CPUSet) (list string, exclusive bool) {
	if len(own) > 0 {
		return own.String(), true
	}
	return r.SharedCPUs().String(), false
}

// ShareCPUs keeps all containers that share off the processors that others have for themselves, and lets them onto
// those that have become free. It does nothing while nobody has any, or had.
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
			r.Log.Warn("change the processors of a container", "container", rec.Meta.Name, "pod", rec.Meta.Key.String(), "err", err)
		}
	}
}

// setCPUs changes which processors a cgroup may use.
func (c Tree) setCPUs(cgroup string, set spec.CPUSet) error {
	root := UnifiedRoot
	if c.Controllers != nil {
		root = c.Controllers["cpuset"]
	}
	return writeFile(filepath.Join(root, cgroup, "cpuset.cpus"), set.String())
}
