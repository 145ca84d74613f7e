package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"monopod/internal/model"
	"monopod/internal/pause"
)

// Source knows the pods.
type Source interface {
	// Places returns the pods that have a cgroup, in any order.
	Places(ctx context.Context) ([]model.Place, error)
	// MeasureDisk walks over what a pod has on disk.
	MeasureDisk(ctx context.Context, p model.Place) (PodDisk, error)
}

// Config of a Collector. New fills in Proc, Now and Wait.
type Config struct {
	Hierarchies Hierarchies
	// Proc is where procfs is: /proc.
	Proc string
	// PodsCgroup has all pods in it.
	PodsCgroup string
	Source     Source
	// Now and Wait are replaced by tests.
	Now  func() time.Time
	Wait func(context.Context, time.Duration)
}

// Periods of measuring.
const (
	// firstWindow is the time over which a rate is measured without an earlier measurement.
	firstWindow = 100 * time.Millisecond
	// rateWindow is the shortest time after which a rate is measured from a new start, longestWindow the longest over
	// which one says anything about the present.
	rateWindow    = time.Second
	longestWindow = 2 * time.Minute
	// diskAge is how long what was found on disk counts, kubelet's volumeStatsAggPeriod. A walk that takes long counts
	// longer: the disk is kept busy for a tenth of the time at most.
	diskAge   = time.Minute
	diskShare = 9
)

// Options say what besides counters is wanted.
type Options struct {
	// Rates: NanoCores are filled in, for which the first caller waits 100 ms.
	Rates bool
	// Disks: the disks of pods are measured, unless that was done in the last minute.
	Disks bool
	// Recent: what was measured at another moment does not count, unless measuring takes long.
	Recent bool
}

// Collector reads what there is. Its methods may be called concurrently; they then wait for each other.
type Collector struct {
	cfg Config

	// turn is held by the one who reads.
	turn chan struct{}
	r    reader
	// starts are the measurements that rates start from, by cgroup; disks are the measured disks, by uid. Both belong to the holder of the
	// turn.
	starts map[string]start
	disks  map[string]foundDisk
}

type start struct {
	// at is before the usage was read.
	at    time.Time
	usage time.Duration
	rate  *uint64
}

type foundDisk struct {
	*PodDisk
	// took is how long it took to measure it.
	took time.Duration
}

// until is how long it counts.
func (d foundDisk) until(o Options) time.Time {
	age := diskAge
	if o.Recent {
		age = 0
	}
	return d.Time.Add(max(age, diskShare*d.took))
}

// New returns a Collector. It does no I/O.
func New(cfg Config) *Collector {
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = func(ctx context.Context, d time.Duration) { pause.For(ctx, d) }
	}
	return &Collector{cfg: cfg, turn: make(chan struct{}, 1), starts: map[string]start{}, disks: map[string]foundDisk{}}
}

// agentName is where the rate of monopod itself is kept; no cgroup has such a name.
const agentName = "self"

// Machine returns what the machine uses.
func (c *Collector) Machine(ctx context.Context, o Options) (Machine, error) {
	done, err := c.take(ctx)
	if err != nil {
		return Machine{}, err
	}
	defer done()
	if o.Rates {
		c.begin(ctx, []string{"/", c.cfg.PodsCgroup, agentName})
	}
	return c.readMachine(o)
}

// Pods returns what the pods use, by namespace and name. Those that end meanwhile are left out.
func (c *Collector) Pods(ctx context.Context, o Options) ([]Pod, error) {
	done, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	places, err := c.places(ctx)
	if err != nil {
		return nil, err
	}
	if o.Rates {
		c.begin(ctx, cgroupsOf(places))
	}
	return c.readPods(ctx, places, o)
}

// All returns both, read together.
func (c *Collector) All(ctx context.Context, o Options) (Machine, []Pod, error) {
	done, err := c.take(ctx)
	if err != nil {
		return Machine{}, nil, err
	}
	defer done()
	places, err := c.places(ctx)
	if err != nil {
		return Machine{}, nil, err
	}
	if o.Rates {
		c.begin(ctx, append(cgroupsOf(places), "/", c.cfg.PodsCgroup, agentName))
	}
	m, err := c.readMachine(o)
	if err != nil {
		return Machine{}, nil, err
	}
	pods, err := c.readPods(ctx, places, o)
	return m, pods, err
}

func (c *Collector) take(ctx context.Context) (func(), error) {
	select {
	case c.turn <- struct{}{}:
		return func() {
			c.r.release()
			<-c.turn
		}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Collector) places(ctx context.Context) ([]model.Place, error) {
	if c.cfg.Source == nil {
		return nil, errors.New("no pods are known")
	}
	places, err := c.cfg.Source.Places(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for pods: %w", err)
	}
	slices.SortFunc(places, func(a, b model.Place) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return places, nil
}

func cgroupsOf(places []model.Place) []string {
	all := make([]string, 0, 2*len(places))
	for i := range places {
		all = append(all, places[i].Cgroup)
		for _, ct := range places[i].Containers {
			all = append(all, ct.Cgroup)
		}
	}
	return all
}

// begin makes sure that there is a start for the rate of each cgroup, and gives the time to see a difference.
func (c *Collector) begin(ctx context.Context, cgroups []string) {
	fresh := false
	for name, s := range c.starts {
		if c.cfg.Now().Sub(s.at) > longestWindow {
			delete(c.starts, name)
		}
	}
	for _, cgroup := range cgroups {
		if _, there := c.starts[cgroup]; there {
			continue
		}
		at := c.cfg.Now()
		if usage, ok := c.cpuTime(cgroup); ok {
			c.starts[cgroup] = start{at: at, usage: usage}
			fresh = true
		}
	}
	if fresh {
		c.cfg.Wait(ctx, firstWindow)
	}
}

func (c *Collector) cpuTime(cgroup string) (time.Duration, bool) {
	if cgroup == agentName {
		u := c.agent(&c.r, time.Time{})
		if u == nil {
			return 0, false
		}
		return u.CPU.Usage, true
	}
	if cgroup == "/" {
		if t, ok := c.cfg.Hierarchies.cpuTime(&c.r, cgroup); ok {
			return t, ok
		}
		var m Machine
		machineCPU(&c.r, c.cfg.Proc, &m)
		return m.CPU.Usage, true
	}
	return c.cfg.Hierarchies.cpuTime(&c.r, cgroup)
}

// rate fills in the rate of a cgroup whose use was just read. The window is from before the first reading until after the second one: on a
// busy machine, time passes between a look at the clock and a reading, and a shorter window would make the rate too high.
func (c *Collector) rate(cgroup string, u *Usage, o Options) {
	if !o.Rates {
		return
	}
	s, there := c.starts[cgroup]
	age := c.cfg.Now().Sub(s.at)
	switch {
	case !there || u.CPU.Usage < s.usage: // another one of that name
		c.starts[cgroup] = start{at: u.Time, usage: u.CPU.Usage}
		return
	case age < firstWindow/2:
		u.CPU.NanoCores = s.rate
		return
	}
	rate := uint64(float64(u.CPU.Usage-s.usage) / age.Seconds())
	u.CPU.NanoCores = &rate
	if age >= rateWindow || s.rate == nil {
		c.starts[cgroup] = start{at: u.Time, usage: u.CPU.Usage, rate: &rate}
	}
}

func (c *Collector) readMachine(o Options) (Machine, error) {
	m, err := c.machine(&c.r, c.cfg.Now())
	if err != nil {
		return Machine{}, err
	}
	c.rate("/", &m.Usage, o)
	if m.Agent = c.agent(&c.r, c.cfg.Now()); m.Agent != nil {
		c.rate(agentName, m.Agent, o)
	}
	if u, ok := c.cfg.Hierarchies.read(&c.r, c.cfg.PodsCgroup, c.cfg.Now()); ok {
		c.rate(c.cfg.PodsCgroup, &u, o)
		m.Pods = &u
	}
	return m, nil
}

func (c *Collector) readPods(ctx context.Context, places []model.Place, o Options) ([]Pod, error) {
	pods := make([]Pod, 0, len(places))
	for _, p := range places {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if pod, ok := c.readPod(p, o); ok {
			pods = append(pods, pod)
		}
	}
	if !o.Disks {
		return pods, nil
	}
	return pods, c.readDisks(ctx, pods, o)
}

func (c *Collector) readPod(p model.Place, o Options) (Pod, bool) {
	u, ok := c.cfg.Hierarchies.read(&c.r, p.Cgroup, c.cfg.Now())
	if !ok {
		return Pod{}, false
	}
	c.rate(p.Cgroup, &u, o)
	pod := Pod{Place: p, Usage: u, Containers: make([]Container, 0, len(p.Containers))}
	for _, place := range p.Containers {
		u, ok := c.cfg.Hierarchies.read(&c.r, place.Cgroup, c.cfg.Now())
		if !ok {
			continue
		}
		c.rate(place.Cgroup, &u, o)
		pod.Containers = append(pod.Containers, Container{ContainerPlace: place, Usage: u})
		if !p.HostNetwork && pod.Network == nil {
			pod.Network = c.network(place.Cgroup)
		}
	}
	return pod, true
}

// readDisks fills in the disks. What cannot be measured is left out: pods come and go.
func (c *Collector) readDisks(ctx context.Context, pods []Pod, o Options) error {
	found := make(map[string]foundDisk, len(pods))
	for i := range pods {
		p := &pods[i]
		d, there := c.disks[p.UID]
		if began := c.cfg.Now(); !there || !began.Before(d.until(o)) || !covers(d.PodDisk, p) {
			disk, err := c.cfg.Source.MeasureDisk(ctx, p.Place)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				continue
			}
			ended := c.cfg.Now()
			disk.Time = ended
			d = foundDisk{&disk, ended.Sub(began)}
		}
		found[p.UID], p.Disk = d, d.PodDisk
	}
	c.disks = found
	return nil
}

// covers reports whether all containers of a pod existed when its disk was measured.
func covers(d *PodDisk, p *Pod) bool {
	for i := range p.Containers {
		if _, ok := d.Layers[p.Containers[i].Name]; !ok {
			return false
		}
	}
	return true
}
