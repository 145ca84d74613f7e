package endpoints

import (
	"maps"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/node/stats"
)

// summary answers /stats/summary. With ?only_cpu_and_memory=true the disks are not looked at.
func (e *Endpoints) summary(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	few := r.URL.Query().Get("only_cpu_and_memory") == "true"
	m, pods, err := e.cfg.Stats.All(r.Context(), stats.Options{Rates: true, Disks: !few})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	node := e.node(&m)
	if !few {
		e.disks(&node, &m, pods)
	}
	out := statsapi.Summary{Node: node, Pods: make([]statsapi.PodStats, 0, len(pods))}
	for i := range pods {
		p := podStats(&pods[i])
		if few {
			p.Network, p.ProcessStats, p.Swap, p.IO = nil, nil, nil, nil
		} else {
			addDisk(&p, &pods[i], node.Fs, node.Runtime)
		}
		out.Pods = append(out.Pods, p)
	}
	if few {
		out.Node.Network, out.Node.Rlimit, out.Node.Swap, out.Node.IO = nil, nil, nil, nil
	}
	e.json(w, out)
}

func (e *Endpoints) node(m *stats.Machine) statsapi.NodeStats {
	n := statsapi.NodeStats{
		NodeName: e.cfg.Node, StartTime: metav1.NewTime(m.Boot), CPU: cpu(&m.Usage), Memory: memory(&m.Usage), IO: blockIO(&m.Usage), Swap: swap(&m.Usage),
		Network: network(m.Time, m.Network),
	}
	available := m.Total - min(m.Memory.WorkingSet, m.Total)
	n.Memory.AvailableBytes = &available
	limit, current := int64(m.MaxPID), int64(m.Pids.Current)
	n.Rlimit = &statsapi.RlimitStats{Time: metav1.NewTime(m.Time), MaxPID: &limit, NumOfRunningProcesses: &current}
	if m.Agent != nil {
		n.SystemContainers = append(n.SystemContainers, systemContainer(statsapi.SystemContainerKubelet, m.Agent, e.started))
	}
	if m.Pods != nil {
		n.SystemContainers = append(n.SystemContainers, systemContainer(statsapi.SystemContainerPods, m.Pods, m.Boot))
	}
	return n
}

func systemContainer(name string, u *stats.Usage, since time.Time) statsapi.ContainerStats {
	return statsapi.ContainerStats{Name: name, StartTime: metav1.NewTime(since), CPU: cpu(u), Memory: memory(u), IO: blockIO(u), Swap: swap(u)}
}

// disks adds the file systems of the machine. What cannot be asked is left out.
func (e *Endpoints) disks(n *statsapi.NodeStats, m *stats.Machine, pods []stats.Pod) {
	if f, err := stats.ReadFilesystem(e.cfg.RootDirectory, m.Time); err == nil {
		used := f.Inodes - min(f.InodesFree, f.Inodes)
		n.Fs = filesystem(f.Time, &f, stats.DiskUse{Bytes: f.Used, Inodes: used})
	}
	f, err := stats.ReadFilesystem(e.cfg.ImageDirectory, m.Time)
	if err != nil {
		return
	}
	var layers stats.DiskUse
	for i := range pods {
		if d := pods[i].Disk; d != nil {
			for _, u := range d.Layers {
				layers.Bytes, layers.Inodes = layers.Bytes+u.Bytes, layers.Inodes+u.Inodes
			}
		}
	}
	images := stats.DiskUse{Bytes: f.Used, Inodes: f.Inodes - min(f.InodesFree, f.Inodes)}
	n.Runtime = &statsapi.RuntimeStats{ImageFs: filesystem(f.Time, &f, images), ContainerFs: filesystem(f.Time, &f, layers)}
}

func podStats(p *stats.Pod) statsapi.PodStats {
	count := p.Pids.Current
	out := statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: p.UID}, StartTime: metav1.NewTime(p.Created),
		CPU: cpu(&p.Usage), Memory: memory(&p.Usage), IO: blockIO(&p.Usage), Swap: swap(&p.Usage), Network: network(p.Time, p.Network),
		ProcessStats: &statsapi.ProcessStats{ProcessCount: &count}, Containers: []statsapi.ContainerStats{},
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		out.Containers = append(out.Containers, statsapi.ContainerStats{
			Name: c.Name, StartTime: metav1.NewTime(c.Started), CPU: cpu(&c.Usage), Memory: memory(&c.Usage), IO: blockIO(&c.Usage), Swap: swap(&c.Usage),
		})
	}
	return out
}

// addDisk adds what the pod has on disk. fs and runtime are the file systems that it is on.
func addDisk(out *statsapi.PodStats, p *stats.Pod, fs *statsapi.FsStats, runtime *statsapi.RuntimeStats) {
	if p.Disk == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.Disk.Volumes)) {
		v := statsapi.VolumeStats{Name: name, FsStats: *on(fs, p.Disk.Time, p.Disk.Volumes[name])}
		if p.Disk.Memory[name] {
			v.FsStats = *on(nil, p.Disk.Time, p.Disk.Volumes[name])
		}
		out.VolumeStats = append(out.VolumeStats, v)
	}
	var images *statsapi.FsStats
	if runtime != nil {
		images = runtime.ImageFs
	}
	for i := range out.Containers {
		c := &out.Containers[i]
		if u, ok := p.Disk.Layers[c.Name]; ok {
			c.Rootfs = on(images, p.Disk.Time, u)
		}
		if u, ok := p.Disk.Logs[c.Name]; ok {
			c.Logs = on(fs, p.Disk.Time, u)
		}
	}
	out.EphemeralStorage = on(fs, p.Disk.Time, p.Disk.Total())
}

// on is a use of a file system; nil: of none that is known.
func on(fs *statsapi.FsStats, at time.Time, u stats.DiskUse) *statsapi.FsStats {
	var out statsapi.FsStats
	if fs != nil {
		out = *fs
	}
	out.Time, out.UsedBytes, out.InodesUsed = metav1.NewTime(at), &u.Bytes, &u.Inodes
	return &out
}

func filesystem(at time.Time, f *stats.Filesystem, u stats.DiskUse) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time: metav1.NewTime(at), AvailableBytes: &f.Available, CapacityBytes: &f.Capacity, UsedBytes: &u.Bytes,
		InodesFree: &f.InodesFree, Inodes: &f.Inodes, InodesUsed: &u.Inodes,
	}
}

func cpu(u *stats.Usage) *statsapi.CPUStats {
	total := uint64(u.CPU.Usage)
	return &statsapi.CPUStats{Time: metav1.NewTime(u.Time), UsageNanoCores: u.CPU.NanoCores, UsageCoreNanoSeconds: &total, PSI: psi(u.CPU.PSI)}
}

func memory(u *stats.Usage) *statsapi.MemoryStats {
	m := u.Memory
	out := &statsapi.MemoryStats{
		Time: metav1.NewTime(u.Time), UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet, RSSBytes: &m.RSS,
		PageFaults: &m.Faults, MajorPageFaults: &m.MajorFaults, PSI: psi(m.PSI),
	}
	if m.Limit > 0 {
		available := m.Limit - min(m.WorkingSet, m.Limit)
		out.AvailableBytes = &available
	}
	return out
}

// blockIO returns the pressure on I/O, nil if the kernel does not report it.
func blockIO(u *stats.Usage) *statsapi.IOStats {
	if u.IO.PSI == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(u.Time), PSI: psi(u.IO.PSI)}
}

func swap(u *stats.Usage) *statsapi.SwapStats {
	if u.Swap == nil {
		return nil
	}
	out := &statsapi.SwapStats{Time: metav1.NewTime(u.Time), SwapUsageBytes: &u.Swap.Usage}
	if u.Swap.Limit > 0 {
		available := u.Swap.Limit - min(u.Swap.Usage, u.Swap.Limit)
		out.SwapAvailableBytes = &available
	}
	return out
}

func psi(p *stats.PSI) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	return &statsapi.PSIStats{Full: psiData(p.Full), Some: psiData(p.Some)}
}

func psiData(s stats.Stall) statsapi.PSIData {
	return statsapi.PSIData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
}

// network tells eth0, or the first interface, as the default one.
func network(at time.Time, all []stats.Interface) *statsapi.NetworkStats {
	if len(all) == 0 {
		return nil
	}
	out := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for i := range all {
		n := &all[i]
		s := statsapi.InterfaceStats{Name: n.Name, RxBytes: &n.RxBytes, RxErrors: &n.RxErrors, TxBytes: &n.TxBytes, TxErrors: &n.TxErrors}
		out.Interfaces = append(out.Interfaces, s)
		if i == 0 || n.Name == "eth0" {
			out.InterfaceStats = s
		}
	}
	return out
}
