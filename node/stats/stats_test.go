package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"monopod/internal/model"
	"monopod/manifests"
)

// write makes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const pressureText = "some avg10=1.50 avg60=0.40 avg300=0.10 total=2500\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1000\n"

func pressureValue() *PSI {
	return &PSI{
		Some: Stall{Avg10: 1.5, Avg60: 0.4, Avg300: 0.1, Total: 2500 * time.Microsecond},
		Full: Stall{Avg10: 0.5, Total: time.Millisecond},
	}
}

// unified writes a cgroup of v2.
func unified(t *testing.T, dir string, usec uint64) {
	t.Helper()
	write(t, dir, map[string]string{
		"cpu.stat":        "usage_usec " + strconv.FormatUint(usec, 10) + "\nuser_usec 1000\nsystem_usec 500\nnr_periods 10\nnr_throttled 3\nthrottled_usec 70\n",
		"memory.current":  "1000000\n",
		"memory.max":      "max\n",
		"memory.peak":     "2000000\n",
		"memory.stat":     "anon 600000\nfile 300000\nkernel 50000\nfile_mapped 1000\ninactive_file 200000\npgfault 77\npgmajfault 7\n",
		"memory.events":   "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\noom_group_kill 0\n",
		"memory.pressure": pressureText, "cpu.pressure": pressureText, "io.pressure": pressureText,
		"memory.swap.current": "4096\n", "memory.swap.max": "8192\n",
		"pids.current": "5\n", "pids.max": "100\n",
		"io.stat":      "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n253:1 \n",
		"cgroup.procs": "",
	})
}

func unifiedUsage(at time.Time) Usage {
	return Usage{
		Time: at,
		CPU: CPU{
			Usage: 1500 * time.Microsecond, User: time.Millisecond, System: 500 * time.Microsecond, Periods: 10, Throttled: 3, ThrottledTime: 70 * time.Microsecond,
			PSI: pressureValue(),
		},
		Memory: Memory{
			Usage: 1000000, WorkingSet: 800000, RSS: 600000, Cache: 300000, Mapped: 1000, Kernel: 50000, Peak: 2000000,
			Faults: 77, MajorFaults: 7, Failures: 4, OOMKills: 1, PSI: pressureValue(),
		},
		Swap: &Swap{Usage: 4096, Limit: 8192},
		Pids: Pids{Current: 5, Limit: 100},
		IO:   IO{Devices: []DeviceIO{{Major: 8, ReadBytes: 4096, WriteBytes: 8192, Reads: 1, Writes: 2}}, PSI: pressureValue()},
	}
}

func TestACgroupOfTheUnifiedHierarchyIsRead(t *testing.T) {
	root := t.TempDir()
	unified(t, filepath.Join(root, "monopod/pod1"), 1500)
	got, ok := Hierarchies{Unified: root}.read(&reader{}, "/monopod/pod1", time.Unix(9, 0))
	if diff := cmp.Diff(unifiedUsage(time.Unix(9, 0)), got); !ok || diff != "" {
		t.Errorf("%v %s", ok, diff)
	}
	if _, ok := (Hierarchies{Unified: root}).read(&reader{}, "/none", time.Time{}); ok {
		t.Error("a cgroup that is not there was read")
	}
}

func TestACgroupOfV1IsReadFromEachHierarchy(t *testing.T) {
	root := t.TempDir()
	h := Hierarchies{Unified: filepath.Join(root, "unified"), Controllers: map[string]string{}}
	for _, name := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
		h.Controllers[name] = filepath.Join(root, name)
	}
	write(t, root, map[string]string{
		"cpuacct/p/cpuacct.usage":                           "1500000\n",
		"cpuacct/p/cpuacct.stat":                            "user 10\nsystem 5\n",
		"cpu/p/cpu.stat":                                    "nr_periods 10\nnr_throttled 3\nthrottled_time 70000\n",
		"memory/p/memory.usage_in_bytes":                    "1000000\n",
		"memory/p/memory.limit_in_bytes":                    "9223372036854771712\n",
		"memory/p/memory.max_usage_in_bytes":                "2000000\n",
		"memory/p/memory.failcnt":                           "4\n",
		"memory/p/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		"memory/p/memory.stat":                              "rss 1\ntotal_rss 600000\ntotal_cache 300000\ntotal_mapped_file 1000\ntotal_inactive_file 200000\ntotal_pgfault 77\ntotal_pgmajfault 7\ntotal_swap 4096\n",
		"pids/p/pids.current":                               "5\n",
		"pids/p/pids.max":                                   "100\n",
		"blkio/p/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\nTotal 12288\n",
		"blkio/p/blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
		"unified/p/cpu.pressure":                            pressureText,
	})
	want := unifiedUsage(time.Unix(9, 0))
	want.CPU.User, want.CPU.System = 100*time.Millisecond, 50*time.Millisecond
	want.Memory.Kernel, want.Swap.Limit = 0, 0
	want.Memory.PSI, want.IO.PSI = nil, nil
	got, ok := h.read(&reader{}, "/p", time.Unix(9, 0))
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v %s", ok, diff)
	}
	write(t, root, map[string]string{"memory/p/memory.limit_in_bytes": "5000\n", "memory/p/memory.memsw.limit_in_bytes": "7000\n"})
	if got, _ := h.read(&reader{}, "/p", time.Time{}); got.Memory.Limit != 5000 || got.Swap.Limit != 2000 {
		t.Errorf("limits %d, %d", got.Memory.Limit, got.Swap.Limit)
	}
}

// node is a machine in a directory with one pod, and a clock.
type node struct {
	t      *testing.T
	root   string
	now    time.Time
	places []model.Place
	walks  int
	err    error
	// took is how long a walk takes.
	took time.Duration
	// onWait is called when a rate waits.
	onWait func(time.Duration)
}

func newNode(t *testing.T) (*node, *Collector) {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), now: time.Unix(1000, 0)}
	write(t, n.root, map[string]string{
		"proc/meminfo":            "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nCached: 200 kB\nMapped: 10 kB\nAnonPages: 400 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n",
		"proc/vmstat":             "pgfault 70\npgmajfault 7\noom_kill 1\n",
		"proc/stat":               "cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nbtime 900\n",
		"proc/loadavg":            "0.1 0.2 0.3 2/345 6789\n",
		"proc/sys/kernel/pid_max": "4096\n",
		"proc/diskstats":          " 8 0 sda 3 0 8 1 4 0 16 2 0 1 1\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n",
		"proc/pressure/cpu":       pressureText, "proc/pressure/memory": pressureText, "proc/pressure/io": pressureText,
		"proc/self/net/dev": "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 1 2 3 0 0 0 0 20 4 5 6 0 0 0 0\n",
		"proc/self/stat":    "77 (mono) pod) S 1 77 77 0 -1 4194560 100 0 5 0 11 22 0 0 20 0 9 0 1 1 1 1\n",
		"proc/self/status":  "Name:\tmonopod\nVmRSS:\t30 kB\nRssAnon:\t20 kB\nRssFile:\t10 kB\n",
		"proc/42/net/dev":   "  eth0:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n",
		"cg/memory.stat":    "inactive_file 102400\n",
		"cg/cpu.stat":       "usage_usec 5000000\n",
	})
	unified(t, n.cgroup("pods"), 9000)
	unified(t, n.cgroup("pods/pod1"), 1500)
	unified(t, n.cgroup("pods/pod1/c"), 1400)
	write(t, n.cgroup("pods/pod1/c/inner"), map[string]string{"cgroup.procs": "42\n43\n"})
	n.places = []model.Place{{
		Key: manifests.Key{Namespace: "default", Name: "web"}, UID: "uid", Cgroup: "/pods/pod1",
		Containers: []model.ContainerPlace{{Name: "gone", Cgroup: "/pods/pod1/gone"}, {Name: "c", Cgroup: "/pods/pod1/c"}},
	}}
	c := New(Config{
		Hierarchies: Hierarchies{Unified: filepath.Join(n.root, "cg")}, Proc: filepath.Join(n.root, "proc"), PodsCgroup: "/pods", Source: n,
		Now:  func() time.Time { return n.now },
		Wait: func(_ context.Context, d time.Duration) { n.now = n.now.Add(d); n.onWait(d) },
	})
	n.onWait = func(time.Duration) { t.Error("somebody waited") }
	return n, c
}

func (n *node) cgroup(name string) string { return filepath.Join(n.root, "cg", name) }

func (n *node) Places(context.Context) ([]model.Place, error) { return n.places, n.err }

func (n *node) MeasureDisk(context.Context, model.Place) (PodDisk, error) {
	n.walks++
	n.now = n.now.Add(n.took)
	return PodDisk{
		Volumes: map[string]DiskUse{"data": {10, 1}, "ram": {100, 1}}, Memory: map[string]bool{"ram": true},
		Layers: map[string]DiskUse{"c": {20, 2}}, Logs: map[string]DiskUse{"c": {30, 3}}, Others: DiskUse{5, 1},
	}, n.err
}

func TestTheMachineIsReadFromProc(t *testing.T) {
	n, c := newNode(t)
	m, err := c.Machine(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pods := unifiedUsage(n.now)
	pods.CPU.Usage = 9 * time.Millisecond
	want := Machine{
		Usage: Usage{
			Time: n.now,
			CPU:  CPU{Usage: 5 * time.Second, User: 300 * time.Millisecond, System: 1600 * time.Millisecond, PSI: pressureValue()},
			Memory: Memory{
				Usage: 700 << 10, WorkingSet: 600 << 10, RSS: 400 << 10, Cache: 200 << 10, Mapped: 10 << 10, Limit: 1000 << 10,
				Faults: 70, MajorFaults: 7, OOMKills: 1, PSI: pressureValue(),
			},
			Swap: &Swap{Usage: 10 << 10, Limit: 100 << 10},
			Pids: Pids{Current: 345, Limit: 4096},
			IO:   IO{Devices: []DeviceIO{{Major: 8, Reads: 3, ReadBytes: 4096, Writes: 4, WriteBytes: 8192}}, PSI: pressureValue()},
		},
		Boot: time.Unix(900, 0).UTC(), Total: 1000 << 10, Available: 600 << 10, MaxPID: 4096,
		Network: []Interface{{Name: "eth0", RxBytes: 10, RxPackets: 1, RxErrors: 2, RxDropped: 3, TxBytes: 20, TxPackets: 4, TxErrors: 5, TxDropped: 6}},
		Pods:    &pods,
		Agent: &Usage{
			Time: n.now, CPU: CPU{Usage: 330 * time.Millisecond, User: 110 * time.Millisecond, System: 220 * time.Millisecond},
			Memory: Memory{Usage: 30 << 10, WorkingSet: 30 << 10, RSS: 20 << 10, Mapped: 10 << 10, Faults: 105, MajorFaults: 5}, Pids: Pids{Current: 9},
		},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	write(t, n.root, map[string]string{"proc/meminfo": ""})
	if _, err := c.Machine(t.Context(), Options{}); err == nil {
		t.Error("a machine without memory")
	}
}

func TestPodsAreReadWithContainersThatAreThere(t *testing.T) {
	n, c := newNode(t)
	n.places = append(n.places, model.Place{Key: manifests.Key{Namespace: "a", Name: "ended"}, Cgroup: "/pods/none"})
	pods, err := c.Pods(t.Context(), Options{})
	if err != nil || len(pods) != 1 {
		t.Fatalf("%v, %v", pods, err)
	}
	p := pods[0]
	if diff := cmp.Diff(unifiedUsage(n.now), p.Usage); diff != "" {
		t.Error(diff)
	}
	if len(p.Containers) != 1 || p.Containers[0].Name != "c" || p.Containers[0].CPU.Usage != 1400*time.Microsecond {
		t.Errorf("containers %+v", p.Containers)
	}
	if len(p.Network) != 1 || p.Network[0].RxBytes != 7 || p.Network[0].TxBytes != 8 {
		t.Errorf("network %+v", p.Network)
	}
	if p.Disk != nil || n.walks != 0 || p.CPU.NanoCores != nil {
		t.Error("more was measured than asked for")
	}
	for i := range n.places {
		n.places[i].HostNetwork = true
	}
	if pods, _ := c.Pods(t.Context(), Options{}); pods[0].Network != nil {
		t.Error("the network of the machine is not that of a pod")
	}
	n.err = errors.New("broken")
	if _, err := c.Pods(t.Context(), Options{}); !errors.Is(err, n.err) {
		t.Errorf("error %v", err)
	}
}

func TestRatesAreThoseOfTheLastSeconds(t *testing.T) {
	n, c := newNode(t)
	rate := func() uint64 {
		t.Helper()
		pods, err := c.Pods(t.Context(), Options{Rates: true})
		if err != nil || len(pods) != 1 || pods[0].CPU.NanoCores == nil {
			t.Fatalf("%+v, %v", pods, err)
		}
		return *pods[0].CPU.NanoCores
	}
	step := func(d time.Duration, usec uint64) {
		n.now = n.now.Add(d)
		unified(t, n.cgroup("pods/pod1"), usec)
	}
	waits := 0
	n.onWait = func(d time.Duration) { waits++; unified(t, n.cgroup("pods/pod1"), 51500) }
	if got := rate(); got != 500_000_000 || waits != 1 {
		t.Errorf("at first: %d after %d waits, want 50 ms in 100 ms", got, waits)
	}
	n.onWait = func(time.Duration) { t.Error("it waited again") }
	step(0, 51500)
	if got := rate(); got != 500_000_000 {
		t.Errorf("at once again: %d", got)
	}
	step(500*time.Millisecond, 551500)
	if got := rate(); got != 1_000_000_000 {
		t.Errorf("half a second later: %d, want one processor", got)
	}
	step(500*time.Millisecond, 551500)
	if got := rate(); got != 500_000_000 {
		t.Errorf("a second after the start: %d, want half a processor", got)
	}
	step(10*time.Second, 551500)
	if got := rate(); got != 0 {
		t.Errorf("after ten idle seconds: %d", got)
	}
	waits = 0
	n.onWait = func(time.Duration) { waits++ }
	step(longestWindow+time.Second, 999999)
	if got := rate(); got != 0 || waits != 1 {
		t.Errorf("long after: %d after %d waits; what was used meanwhile is not the present", got, waits)
	}
	n.onWait = func(time.Duration) { t.Error("it waited again") }
	step(time.Second, 10) // made anew
	if pods, err := c.Pods(t.Context(), Options{Rates: true}); err != nil || pods[0].CPU.NanoCores != nil {
		t.Errorf("of a new cgroup nothing is known: %v", err)
	}
	n.onWait = func(time.Duration) {}
	if m, err := c.Machine(t.Context(), Options{Rates: true}); err != nil || m.CPU.NanoCores == nil || m.Agent.CPU.NanoCores == nil || m.Pods.CPU.NanoCores == nil {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestDisksAreWalkedOnceAMinute(t *testing.T) {
	n, c := newNode(t)
	n.took = 10 * time.Second
	read := func(walks int) {
		t.Helper()
		_, pods, err := c.All(t.Context(), Options{Disks: true})
		if err != nil || len(pods) != 1 || pods[0].Disk == nil || n.walks != walks {
			t.Fatalf("%d walks, want %d: %+v, %v", n.walks, walks, pods, err)
		}
		if got := pods[0].Disk.Total(); got != (DiskUse{Bytes: 65, Inodes: 7}) {
			t.Errorf("in all %+v", got)
		}
	}
	read(1)
	read(1)
	n.now = n.now.Add(89 * time.Second)
	read(1) // the walk took ten seconds: nine times that it is left alone
	n.now = n.now.Add(2 * time.Second)
	read(2)
	n.took = 0
	n.now = n.now.Add(90 * time.Second)
	for walks := 3; walks < 5; walks++ {
		if _, err := c.Pods(t.Context(), Options{Disks: true, Recent: true}); err != nil || n.walks != walks {
			t.Errorf("%d walks when what was found before does not count, %v", n.walks, err)
		}
	}
	n.took = time.Second
	for range 2 {
		if _, err := c.Pods(t.Context(), Options{Disks: true, Recent: true}); err != nil || n.walks != 5 {
			t.Errorf("%d walks when they take long, %v", n.walks, err)
		}
	}
	n.places[0].Containers[0].Cgroup = "/pods/pod1/c" // a container that was not there
	n.took = 0
	_, pods, err := c.All(t.Context(), Options{Disks: true})
	if err != nil || n.walks != 6 || len(pods) != 1 {
		t.Errorf("%d walks after a container was added, %v", n.walks, err)
	}
}

func TestWhoDoesNotWaitGetsNoTurn(t *testing.T) {
	_, c := newNode(t)
	done, err := c.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err1 := c.Machine(ctx, Options{})
	_, err2 := c.Pods(ctx, Options{})
	_, _, err3 := c.All(ctx, Options{})
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
}

func TestThisMachineCanBeRead(t *testing.T) {
	h, err := FindHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Hierarchies: h, PodsCgroup: "/none"})
	m, err := c.Machine(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Total == 0 || m.Memory.Usage == 0 || m.Memory.Usage > m.Total || m.Memory.WorkingSet > m.Memory.Usage || m.CPU.Usage == 0 {
		t.Errorf("machine %+v", m)
	}
	if m.Agent == nil || m.Agent.Memory.RSS == 0 || m.Agent.Memory.RSS > m.Agent.Memory.Usage || m.Agent.Pids.Current == 0 {
		t.Errorf("this process %+v", m.Agent)
	}
	f, err := ReadFilesystem("/", m.Time)
	if err != nil || f.Capacity == 0 || f.Used+f.Available > f.Capacity {
		t.Errorf("file system %+v, %v", f, err)
	}
	if _, err := ReadFilesystem("/no/such/file", m.Time); !os.IsNotExist(err) {
		t.Errorf("error %v", err)
	}
}

func TestTheInterfacesOfAPodAreBounded(t *testing.T) {
	n, c := newNode(t)
	var b strings.Builder
	for i := 0; b.Len() < 3*maxFile; i++ {
		fmt.Fprintf(&b, "  eth%d: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n", i)
	}
	write(t, n.root, map[string]string{"proc/42/net/dev": b.String()})
	pods, err := c.Pods(t.Context(), Options{})
	if err != nil || len(pods) != 1 || len(pods[0].Network) != maxInterfaces {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	if kept := len(c.r.buf); kept > keptBuffer {
		t.Errorf("%d bytes are kept until somebody asks again", kept)
	}
	r := &reader{}
	if read := len(r.bytes(n.root, "proc/42/net/dev")); read != maxFile || len(r.buf) > maxFile {
		t.Errorf("%d bytes are read, with a buffer of %d", read, len(r.buf))
	}
}
