package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/node/stats"
)

// resourceFamily is /metrics/resource, which metrics-server reads.
type resourceFamily struct {
	family
	src Sources

	nodeCPU, nodeMemory, nodeSwap                         *definition
	podCPU, podMemory, podSwap                            *definition
	containerCPU, containerMemory, containerSwap, started *definition
	failed                                                *definition
}

func newResource(src Sources) *resourceFamily {
	f := &resourceFamily{family: family{path: PathResource}, src: src}
	f.nodeCPU = f.add(counter, "node_cpu_usage_seconds_total", "CPU time used by the machine.")
	f.nodeMemory = f.add(gauge, "node_memory_working_set_bytes", "Working set of the machine.")
	f.nodeSwap = f.add(gauge, "node_swap_usage_bytes", "Swap used by the machine.")
	pod := []string{"pod", "namespace"}
	f.podCPU = f.add(counter, "pod_cpu_usage_seconds_total", "CPU time used by the pod.", pod...)
	f.podMemory = f.add(gauge, "pod_memory_working_set_bytes", "Working set of the pod.", pod...)
	f.podSwap = f.add(gauge, "pod_swap_usage_bytes", "Swap used by the pod.", pod...)
	container := []string{"container", "pod", "namespace"}
	f.containerCPU = f.add(counter, "container_cpu_usage_seconds_total", "CPU time used by the container.", container...)
	f.containerMemory = f.add(gauge, "container_memory_working_set_bytes", "Working set of the container.", container...)
	f.containerSwap = f.add(gauge, "container_swap_usage_bytes", "Swap used by the container.", container...)
	f.started = f.add(gauge, "container_start_time_seconds", "Start time of the container, in seconds since 1970.", container...)
	f.failed = f.add(gauge, "resource_scrape_error", "1 if a measurement failed, 0 otherwise.")
	return f
}

// Collect implements prometheus.Collector.
func (f *resourceFamily) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	m, pods, err := f.src.Stats.All(ctx, stats.Options{})
	if err != nil {
		sink{ch: ch}.put(f.failed, 1)
		return
	}
	sink{ch: ch}.put(f.failed, 0)
	node := sink{ch: ch, at: m.Time}
	node.put(f.nodeCPU, seconds(m.CPU.Usage))
	node.put(f.nodeMemory, float64(m.Memory.WorkingSet))
	if m.Swap != nil {
		node.put(f.nodeSwap, float64(m.Swap.Usage))
	}
	for i := range pods {
		p := &pods[i]
		s := sink{ch: ch, at: p.Time}
		s.put(f.podCPU, seconds(p.CPU.Usage), p.Name, p.Namespace)
		s.put(f.podMemory, float64(p.Memory.WorkingSet), p.Name, p.Namespace)
		if p.Swap != nil {
			s.put(f.podSwap, float64(p.Swap.Usage), p.Name, p.Namespace)
		}
		for _, c := range latest(p.Containers) {
			s := sink{ch: ch, at: c.Time}
			s.put(f.containerCPU, seconds(c.CPU.Usage), c.Name, p.Name, p.Namespace)
			s.put(f.containerMemory, float64(c.Memory.WorkingSet), c.Name, p.Name, p.Namespace)
			s.put(f.started, unix(c.Started), c.Name, p.Name, p.Namespace)
			if c.Swap != nil {
				s.put(f.containerSwap, float64(c.Swap.Usage), c.Name, p.Name, p.Namespace)
			}
		}
	}
}

// latest leaves one instance of each container: while one replaces another, both may be there.
func latest(all []stats.Container) []*stats.Container {
	byName := make(map[string]int, len(all))
	out := make([]*stats.Container, 0, len(all))
	for i := range all {
		c := &all[i]
		at, there := byName[c.Name]
		switch {
		case !there:
			byName[c.Name] = len(out)
			out = append(out, c)
		case c.Started.After(out[at].Started):
			out[at] = c
		}
	}
	return out
}
