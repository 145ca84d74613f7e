package ctrd

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

	"monopod/runner/spec"
)

// cpus gives processors to containers that have them for themselves, and keeps the others off them. Who has which is
// in the labels of the containers; only those of containers on their way into being are kept here.
type cpus struct {
	topology []spec.CPU
	online   spec.CPUSet
	reserved spec.CPUSet

	mu sync.Mutex
	// coming are processors by the id of a container without a record. Guarded by mu.
	coming map[string]spec.CPUSet
}

// readCPUs reads which processors there are.
func readCPUs(root, reserved string) (*cpus, error) {
	text, err := os.ReadFile(filepath.Join(root, "online"))
	if err != nil {
		return nil, err
	}
	c := &cpus{coming: map[string]spec.CPUSet{}}
	if c.online, err = spec.ParseCPUSet(string(text)); err != nil {
		return nil, err
	}
	if c.reserved, err = spec.ParseCPUSet(reserved); err != nil {
		return nil, err
	}
	for _, id := range c.online {
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

// errNoCPUs: a container wants more processors for itself than are left.
var errNoCPUs = errors.New("not enough processors that are not taken")

// assignCPUs chooses the processors of a new container: those of the instance that it takes the place of, if they are
// as many, else free ones. release gives them back, or takes them out of the list when the record says so.
func (r *Runtime) assignCPUs(id string, sb *sandboxRecord, pod *corev1.Pod, container string) (set spec.CPUSet, release func(), err error) {
	if !r.host.Enforce.StaticCPUs {
		return nil, func() {}, nil
	}
	n := spec.WholeCPUs(pod, container)
	if n == 0 {
		return nil, func() {}, nil
	}
	c := r.cpus
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.reserved
	var former spec.CPUSet
	for _, rec := range r.index.all() {
		has := exclusive(rec)
		if rec.Labels.SandboxID == sb.ID && rec.Labels.Name == container {
			former = has // both never run at once
			continue
		}
		taken = taken.Union(has)
	}
	for _, set := range c.coming {
		taken = taken.Union(set)
	}
	free := c.online.Without(taken)
	if len(former) == n && len(former.Without(free)) == 0 {
		set = former
	} else {
		var ok bool
		if set, ok = spec.PickCPUs(c.topology, free, n); !ok {
			return nil, nil, fmt.Errorf("%w: %d are wanted, %q are left", errNoCPUs, n, free.String())
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
func exclusive(rec *containerRecord) spec.CPUSet {
	if rec.Labels.Exit != nil {
		return nil
	}
	set, err := spec.ParseCPUSet(rec.Labels.CPUs)
	if err != nil {
		return nil
	}
	return set
}

// sharedCPUs are those that nobody has for itself; nil when that is so of all.
func (r *Runtime) sharedCPUs() spec.CPUSet {
	r.cpus.mu.Lock()
	defer r.cpus.mu.Unlock()
	var taken spec.CPUSet
	for _, rec := range r.index.all() {
		taken = taken.Union(exclusive(rec))
	}
	for _, set := range r.cpus.coming {
		taken = taken.Union(set)
	}
	if len(taken) == 0 {
		return nil
	}
	return r.cpus.online.Without(taken)
}

// cpusOf tells for the spec of a container which processors it may use.
func (r *Runtime) cpusOf(own spec.CPUSet) (list string, exclusive bool) {
	if len(own) > 0 {
		return own.String(), true
	}
	return r.sharedCPUs().String(), false
}

// shareCPUs keeps all containers that share off the processors that others have for themselves, and lets them onto
// those that have become free. It does nothing while nobody has any, or had.
func (r *Runtime) shareCPUs() {
	defer r.locks.lock("cpus")()
	shared := r.sharedCPUs()
	if shared == nil {
		shared = r.cpus.online
	}
	for _, rec := range r.index.all() {
		if rec.Labels.CPUs != "" || rec.Labels.Exit != nil {
			continue
		}
		if err := r.cgroups.setCPUs(r.cgroupOf(rec), shared); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("change the processors of a container", "container", rec.Labels.Name, "pod", rec.Labels.Key.String(), "err", err)
		}
	}
}

// setCPUs changes which processors a cgroup may use.
func (c cgroups) setCPUs(cgroup string, set spec.CPUSet) error {
	root := unifiedRoot
	if c.controllers != nil {
		root = c.controllers["cpuset"]
	}
	return writeFile(filepath.Join(root, cgroup, "cpuset.cpus"), set.String())
}
