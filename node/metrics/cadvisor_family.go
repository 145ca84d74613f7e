package metrics

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/node/stats"
)

// cadvisorFamily is /metrics/cadvisor: a row for the machine, for all pods, for each pod and for each container.
type cadvisorFamily struct {
	family
	src Sources

	cores, memory, swap, failed                           *definition
	lastSeen, started                                     *definition
	cpu, cpuUser, cpuSystem, periods, throttled, throttle *definition
	usage, workingSet, rss, cache, mapped, kernel, peak   *definition
	swapped, limit, failcnt, failures, ooms               *definition
	threads, threadsMax                                   *definition
	reads, writes, readBytes, writeBytes                  *definition
	network                                               [8]*definition
	waiting, stalled                                      [3]*definition
}

// row is what the metrics of one cgroup are labeled with, in the order of rowLabels.
type row []string

func rowLabels(more ...string) []string {
	return append([]string{"container", "id", "image", "name", "namespace", "pod"}, more...)
}

func (r row) with(more ...string) []string { return append(append([]string(nil), r...), more...) }

func newCadvisor(src Sources) *cadvisorFamily {
	f := &cadvisorFamily{family: family{path: PathCadvisor}, src: src}
	f.cores = f.add(gauge, "machine_cpu_cores", "Number of processors.")
	f.memory = f.add(gauge, "machine_memory_bytes", "Memory of the machine.")
	f.swap = f.add(gauge, "machine_swap_bytes", "Swap of the machine.")
	f.failed = f.add(gauge, "container_scrape_error", "1 if a measurement failed, 0 otherwise.")
	f.lastSeen = f.row(gauge, "container_last_seen", "Time of the measurement, in seconds since 1970.")
	f.started = f.row(gauge, "container_start_time_seconds", "Start time, in seconds since 1970.")
	f.cpu = f.row(counter, "container_cpu_usage_seconds_total", "CPU time used.", "cpu")
	f.cpuUser = f.row(counter, "container_cpu_user_seconds_total", "CPU time used in user mode.")
	f.cpuSystem = f.row(counter, "container_cpu_system_seconds_total", "CPU time used in kernel mode.")
	f.periods = f.row(counter, "container_cpu_cfs_periods_total", "Number of elapsed quota periods.")
	f.throttled = f.row(counter, "container_cpu_cfs_throttled_periods_total", "Number of throttled quota periods.")
	f.throttle = f.row(counter, "container_cpu_cfs_throttled_seconds_total", "Time spent throttled.")
	f.usage = f.row(gauge, "container_memory_usage_bytes", "Memory in use, including cached files.")
	f.workingSet = f.row(gauge, "container_memory_working_set_bytes", "Memory in use without inactive files (working set).")
	f.rss = f.row(gauge, "container_memory_rss", "Anonymous memory in bytes.")
	f.cache = f.row(gauge, "container_memory_cache", "Cached files in bytes.")
	f.mapped = f.row(gauge, "container_memory_mapped_file", "Mapped files in bytes.")
	f.kernel = f.row(gauge, "container_memory_kernel_usage", "Kernel memory in bytes.")
	f.peak = f.row(gauge, "container_memory_max_usage_bytes", "Maximum memory usage.")
	f.swapped = f.row(gauge, "container_memory_swap", "Swap in bytes.")
	f.limit = f.row(gauge, "container_spec_memory_limit_bytes", "Memory limit; 0: none.")
	f.failcnt = f.row(counter, "container_memory_failcnt", "Number of times that the memory limit was hit.")
	f.failures = f.row(counter, "container_memory_failures_total", "Number of page faults.", "failure_type", "scope")
	f.ooms = f.row(counter, "container_oom_events_total", "Number of processes killed because memory ran out.")
	f.threads = f.row(gauge, "container_threads", "Number of tasks.")
	f.threadsMax = f.row(gauge, "container_threads_max", "Task limit; 0: none.")
	f.reads = f.row(counter, "container_fs_reads_total", "Number of reads from a device.", "device")
	f.writes = f.row(counter, "container_fs_writes_total", "Number of writes to a device.", "device")
	f.readBytes = f.row(counter, "container_fs_reads_bytes_total", "Bytes read from a device.", "device")
	f.writeBytes = f.row(counter, "container_fs_writes_bytes_total", "Bytes written to a device.", "device")
	for i, name := range []string{"receive_bytes", "receive_packets", "receive_errors", "receive_packets_dropped", "transmit_bytes", "transmit_packets", "transmit_errors", "transmit_packets_dropped"} {
		f.network[i] = f.row(counter, "container_network_"+name+"_total", "Counted on an interface of the pod's network.", "interface")
	}
	for i, what := range []string{"cpu", "memory", "io"} {
		f.waiting[i] = f.row(counter, "container_pressure_"+what+"_waiting_seconds_total", "Time in which at least one task waited for "+what+".")
		f.stalled[i] = f.row(counter, "container_pressure_"+what+"_stalled_seconds_total", "Time in which all tasks waited for "+what+".")
	}
	return f
}

func (f *cadvisorFamily) row(kind, name, help string, labels ...string) *definition {
	return f.add(kind, name, help, rowLabels(labels...)...)
}

// Collect implements prometheus.Collector.
func (f *cadvisorFamily) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	m, pods, err := f.src.Stats.All(ctx, stats.Options{})
	if err != nil {
		sink{ch: ch}.put(f.failed, 1)
		return
	}
	s := sink{ch: ch}
	s.put(f.failed, 0)
	s.put(f.cores, float64(runtime.NumCPU()))
	s.put(f.memory, float64(m.Total))
	if m.Swap != nil {
		s.put(f.swap, float64(m.Swap.Limit))
	}
	names := deviceNames{}
	f.one(s, row{"", "/", "", "", "", ""}, &m.Usage, m.Boot, names)
	f.interfaces(sink{ch, m.Time}, row{"", "/", "", "", "", ""}, m.Network)
	for i := range pods {
		p := &pods[i]
		r := row{"", p.Cgroup, "", "", p.Namespace, p.Name}
		f.one(s, r, &p.Usage, p.Created, names)
		f.interfaces(sink{ch, p.Time}, r, p.Network)
		for j := range p.Containers {
			c := &p.Containers[j]
			f.one(s, row{c.Name, c.Cgroup, c.Image, c.ID, p.Namespace, p.Name}, &c.Usage, c.Started, names)
		}
	}
}

// one adds the usage of one cgroup.
func (f *cadvisorFamily) one(s sink, r row, u *stats.Usage, started time.Time, names deviceNames) {
	s.at = u.Time
	s.put(f.lastSeen, unix(u.Time), r...)
	s.put(f.started, unix(started), r...)
	s.put(f.cpu, seconds(u.CPU.Usage), r.with("total")...)
	s.put(f.cpuUser, seconds(u.CPU.User), r...)
	s.put(f.cpuSystem, seconds(u.CPU.System), r...)
	if u.CPU.Periods > 0 {
		s.put(f.periods, float64(u.CPU.Periods), r...)
		s.put(f.throttled, float64(u.CPU.Throttled), r...)
		s.put(f.throttle, seconds(u.CPU.ThrottledTime), r...)
	}
	for _, v := range []struct {
		d *definition
		n uint64
	}{
		{f.usage, u.Memory.Usage},
		{f.workingSet, u.Memory.WorkingSet},
		{f.rss, u.Memory.RSS},
		{f.cache, u.Memory.Cache},
		{f.mapped, u.Memory.Mapped},
		{f.kernel, u.Memory.Kernel},
		{f.peak, u.Memory.Peak},
		{f.limit, u.Memory.Limit},
		{f.failcnt, u.Memory.Failures},
		{f.ooms, u.Memory.OOMKills},
		{f.threads, u.Pids.Current},
		{f.threadsMax, u.Pids.Limit},
	} {
		s.put(v.d, float64(v.n), r...)
	}
	if u.Swap != nil {
		s.put(f.swapped, float64(u.Swap.Usage), r...)
	}
	s.put(f.failures, float64(u.Memory.Faults), r.with("pgfault", "hierarchy")...)
	s.put(f.failures, float64(u.Memory.MajorFaults), r.with("pgmajfault", "hierarchy")...)
	for _, d := range u.IO.Devices {
		labels := r.with(names.of(d.Major, d.Minor))
		s.put(f.reads, float64(d.Reads), labels...)
		s.put(f.writes, float64(d.Writes), labels...)
		s.put(f.readBytes, float64(d.ReadBytes), labels...)
		s.put(f.writeBytes, float64(d.WriteBytes), labels...)
	}
	for i, psi := range []*stats.PSI{u.CPU.PSI, u.Memory.PSI, u.IO.PSI} {
		if psi != nil {
			s.put(f.waiting[i], seconds(psi.Some.Total), r...)
			s.put(f.stalled[i], seconds(psi.Full.Total), r...)
		}
	}
}

func (f *cadvisorFamily) interfaces(s sink, r row, all []stats.Interface) {
	for _, n := range all {
		labels := r.with(n.Name)
		for i, v := range []uint64{n.RxBytes, n.RxPackets, n.RxErrors, n.RxDropped, n.TxBytes, n.TxPackets, n.TxErrors, n.TxDropped} {
			s.put(f.network[i], float64(v), labels...)
		}
	}
}

// deviceNames remembers what devices are called.
type deviceNames map[[2]uint64]string

func (d deviceNames) of(major, minor uint64) string {
	key := [2]uint64{major, minor}
	name, known := d[key]
	if !known {
		name = fmt.Sprintf("%d:%d", major, minor)
		if link, err := os.Readlink("/sys/dev/block/" + name); err == nil {
			name = "/dev/" + filepath.Base(link)
		}
		d[key] = name
	}
	return name
}
