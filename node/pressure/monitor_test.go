package pressure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// machine is a made-up one: Sensors and Node.
type machine struct {
	mu      sync.Mutex
	free    int64 // of 1000 units, of memory and of disk
	signal  Signal
	pods    []Pod
	stuck   bool // pods that are evicted do not go
	images  int64
	dead    int64
	looks   int
	broken  error // images cannot be removed
	journal []string
	wake    chan<- struct{}
	// imageFs is the size of the file system of images; 0: nothing is known of it.
	imageFs int64
}

func (m *machine) Read(into Observations) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	into[m.signal] = Level{m.free, 1000}
	if m.imageFs > 0 {
		into[ImageFsAvailable] = Level{m.imageFs, m.imageFs}
	}
}

func (m *machine) Stalls(ctx context.Context, wake chan<- struct{}) {
	m.edit(func() { m.wake = wake })
	<-ctx.Done()
}

func (m *machine) Pods(_ context.Context, disks bool) ([]Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if disks != (m.signal.Condition() == corev1.NodeDiskPressure) {
		m.note("disks are measured: %v", disks)
	}
	return slices.Clone(m.pods), nil
}

func (m *machine) Evict(key manifests.Key, o Order) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note("evict %s", key.Name)
	if m.stuck {
		return
	}
	m.pods = slices.DeleteFunc(m.pods, func(p Pod) bool {
		if p.UID == o.UID {
			m.free += p.Use.Memory
		}
		return p.UID == o.UID
	})
}

func (m *machine) ReclaimContainers(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note("reclaim containers")
	freed := m.dead
	m.free, m.dead = m.free+m.dead, 0
	return freed, nil
}

func (m *machine) ReclaimImages(_ context.Context, bytes int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	freed := min(m.images, bytes)
	m.note("reclaim images %d", bytes)
	m.free, m.images = m.free+freed, m.images-freed
	return freed, m.broken
}

func (m *machine) Tell(_, reason, _ string) { m.edit(func() { m.note("%s", reason) }) }

// edit changes the machine.
func (m *machine) edit(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// note wants mu.
func (m *machine) note(format string, args ...any) {
	m.journal = append(m.journal, fmt.Sprintf(format, args...))
}

func (m *machine) said() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := strings.Join(m.journal, ", ")
	m.journal = nil
	return text
}

// run runs a monitor of a machine; the test passes time.
func run(t *testing.T, m *machine) *Monitor {
	t.Helper()
	return runAs(t, m, Config{Thresholds: thresholds(t, Written{Hard: map[string]string{string(m.signal): "100"}}), Transition: time.Minute, Period: 10 * time.Second})
}

func runAs(t *testing.T, m *machine, cfg Config) *Monitor {
	t.Helper()
	mon := New(cfg, m, m, slog.New(slog.DiscardHandler), time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := mon.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return mon
}

func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestOnePodAfterTheOtherIsEvictedUntilThereIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{signal: MemoryAvailable, free: 20, pods: []Pod{running("a", 50, 0, 0), running("b", 40, 0, 0), running("c", 30, 0, 0)}}
		mon := run(t, m)
		changed, cancel := mon.Subscribe()
		defer cancel()
		if got := m.said(); got != "NodeHasInsufficientMemory, EvictionThresholdMet, evict a" {
			t.Errorf("at first: %s", got)
		}
		pass(time.Second)
		if got := m.said(); got != "evict b" {
			t.Errorf("then: %s", got)
		}
		pass(30 * time.Second)
		if got := m.said(); got != "" {
			t.Errorf("with enough: %s", got)
		}
		if p := mon.Pressures(); len(p) != 1 || p[0] != corev1.NodeMemoryPressure {
			t.Errorf("%v", p)
		}
		c := mon.Conditions()
		if len(c) != 3 || c[0].Status != corev1.ConditionTrue || c[0].Reason != "KubeletHasInsufficientMemory" || c[1].Reason != "KubeletHasNoDiskPressure" || c[2].Message != "kubelet has sufficient PID available" {
			t.Errorf("%+v", c)
		}
		pass(time.Minute)
		if got := m.said(); got != "NodeHasSufficientMemory" || len(mon.Pressures()) > 0 {
			t.Errorf("in the end: %s", got)
		}
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
	})
}

func TestNoOtherPodIsEvictedWhileOneStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{signal: PIDAvailable, free: 20, stuck: true, pods: []Pod{running("a", 50, 0, 0), running("b", 40, 0, 0)}}
		run(t, m)
		m.said()
		pass(29 * time.Second)
		if got := m.said(); got != "" {
			t.Errorf("while it stops: %s", got)
		}
		m.edit(func() { m.pods[0].Leaving = true })
		pass(2 * time.Second)
		if got := m.said(); got != "evict b" {
			t.Errorf("when that takes too long: %s", got)
		}
	})
}

func TestAPodHasItsGracePeriodBeforeAnotherOneIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{signal: MemoryAvailable, free: 120, stuck: true, pods: []Pod{running("a", 50, 0, 0), running("b", 40, 0, 0), running("c", 30, 0, 0)}}
		name := string(m.signal)
		cfg := Config{
			Thresholds: thresholds(t, Written{
				Hard: map[string]string{name: "100"}, Soft: map[string]string{name: "200"}, SoftGrace: map[string]string{name: "1m"},
			}),
			MaxPodGrace: time.Minute, Transition: time.Minute, Period: 10 * time.Second,
		}
		runAs(t, m, cfg)
		pass(time.Minute)
		if got := m.said(); got != "NodeHasInsufficientMemory, EvictionThresholdMet, evict a" {
			t.Errorf("at first: %s", got)
		}
		m.edit(func() { m.pods[0].Leaving = true })
		pass(89 * time.Second)
		if got := m.said(); got != "" {
			t.Errorf("while it stops: %s", got)
		}
		pass(2 * time.Second)
		if got := m.said(); got != "evict b" {
			t.Errorf("when that takes too long: %s", got)
		}
		m.edit(func() { m.pods[1].Leaving = true })
		pass(31 * time.Second)
		m.edit(func() { m.free = 20 })
		pass(time.Second)
		if got := m.said(); got != "evict c" {
			t.Errorf("when it gets worse: %s", got)
		}
	})
}

func TestWhatNobodyNeedsGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{signal: NodeFsAvailable, free: 20, dead: 10, images: 500, pods: []Pod{running("a", 50, 0, 0)}}
		run(t, m)
		if got := m.said(); got != "NodeHasDiskPressure, EvictionThresholdMet, reclaim containers, reclaim images 70" {
			t.Errorf("at first: %s", got)
		}
		m.edit(func() { m.free, m.images = 50, 0 })
		pass(10 * time.Second)
		if got := m.said(); got != "EvictionThresholdMet, reclaim containers, reclaim images 50, evict a" {
			t.Errorf("when that is not enough: %s", got)
		}
	})
}

func TestNoMoreIsGivenBackThanHelps(t *testing.T) {
	const begin = "NodeHasDiskPressure, EvictionThresholdMet, reclaim containers"
	for name, tt := range map[string]struct {
		machine *machine
		want    string
	}{
		"what containers left is enough":     {&machine{signal: NodeFsAvailable, free: 20, dead: 80, images: 500}, begin},
		"the images are on the same disk":    {&machine{signal: NodeFsAvailable, free: 20, images: 500, imageFs: 1000}, begin + ", reclaim images 80"},
		"the images are on another disk":     {&machine{signal: NodeFsAvailable, free: 20, images: 500, imageFs: 2000}, begin + ", evict a"},
		"it is the disk of the images":       {&machine{signal: ImageFsInodesFree, free: 20, images: 500}, begin + fmt.Sprintf(", reclaim images %d", 1<<62)},
		"the machine is not short of a disk": {&machine{signal: PIDAvailable, free: 20, dead: 80, images: 500}, "NodeHasInsufficientPID, EvictionThresholdMet, evict a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := tt.machine
			m.pods = []Pod{running("a", 50, 0, 0)}
			m.pods[0].Use.PIDs, m.pods[0].Use.Disk = 50, 50
			run(t, m)
			if got := m.said(); got != tt.want {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

func TestItIsSaidOnceThatNobodyCanBeEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{signal: MemoryAvailable, free: 20, pods: []Pod{protected(running("a", 50, 0, 0))}}
		run(t, m)
		pass(5 * time.Minute)
		if got := m.said(); got != "NodeHasInsufficientMemory, EvictionThresholdMet, EvictionInVain" {
			t.Errorf("%s", got)
		}
	})
}

func TestItIsSaidOnceWhatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		m := &machine{signal: NodeFsAvailable, free: 20, broken: errors.New("not now")}
		mon := New(Config{Thresholds: thresholds(t, Written{Hard: map[string]string{string(m.signal): "100"}})}, m, m, slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		said := func() int {
			mon.Look(t.Context())
			return strings.Count(log.String(), "cannot remove all unused images")
		}
		for range 3 {
			if n := said(); n != 1 {
				t.Errorf("said %d times", n)
			}
		}
		m.edit(func() { m.broken = nil })
		said()
		m.edit(func() { m.broken = errors.New("not now") })
		if n := said(); n != 2 {
			t.Errorf("said %d times when it is so again", n)
		}
	})
}

func TestItLooksEveryTenSecondsAndWhenTheKernelSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{signal: MemoryAvailable, free: 500}
		run(t, m)
		looks := func() (n int) { m.edit(func() { n = m.looks }); return n }
		if looks() != 1 {
			t.Errorf("%d looks", looks())
		}
		pass(95 * time.Second)
		if looks() != 10 {
			t.Errorf("%d looks in 95 s", looks())
		}
		m.edit(func() { m.free = 5 })
		var wake chan<- struct{}
		m.edit(func() { wake = m.wake })
		wake <- struct{}{}
		synctest.Wait()
		if looks() != 11 || !strings.HasPrefix(m.said(), "NodeHasInsufficientMemory") {
			t.Errorf("%d looks", looks())
		}
	})
}

func kernel(t *testing.T) *Kernel {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 5 kB\nMemAvailable:     400 kB\n", "proc/loadavg": "0.00 0.01 0.05 1/123 4567\n",
		"proc/sys/kernel/pid_max": "32768\n", "proc/sys/kernel/threads-max": "1000\n",
		"v2/memory.max": "1000\n", "v2/memory.current": "600\n", "v2/memory.stat": "anon 5\ninactive_file 100\n",
		"v1/memory.limit_in_bytes": "2000\n", "v1/memory.usage_in_bytes": "600\n", "v1/memory.stat": "inactive_file 7\ntotal_inactive_file 100\n",
		"none/memory.max": "max\n", "none/memory.current": "600\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Kernel{Root: root, NodeFs: root}
}

func TestLevelsAreReadFromTheKernel(t *testing.T) {
	k := kernel(t)
	for dir, want := range map[string]Level{"v2": {500, 1000}, "v1": {1500, 2000}, "none": {}, "missing": {}} {
		k.PodsMemory = filepath.Join(k.Root, dir)
		seen := Observations{}
		k.Read(seen)
		if seen[AllocatableMemoryAvailable] != want {
			t.Errorf("%s: %+v", dir, seen[AllocatableMemoryAvailable])
		}
		if seen[MemoryAvailable] != (Level{400 << 10, 1000 << 10}) || seen[PIDAvailable] != (Level{877, 1000}) {
			t.Errorf("%+v", seen)
		}
		if l := seen[NodeFsAvailable]; l.Available <= 0 || l.Capacity < l.Available {
			t.Errorf("disk: %+v", l)
		}
		if _, ok := seen[ImageFsAvailable]; ok {
			t.Error("a file system that nobody named")
		}
	}
	if err := os.WriteFile(filepath.Join(k.Root, "proc/loadavg"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	seen := Observations{}
	if k.Read(seen); seen[PIDAvailable] != (Level{}) {
		t.Errorf("%+v", seen)
	}
}

func TestALookCostsNextToNothing(t *testing.T) {
	k := &Kernel{NodeFs: "/", ImageFs: "/"}
	seen := Observations{}
	k.Read(seen)
	if len(seen) < 4 {
		t.Fatalf("%+v", seen)
	}
	if n := testing.AllocsPerRun(20, func() { clear(seen); k.Read(seen) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func TestTheWaitForTheKernelEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { (&Kernel{}).Stalls(ctx, make(chan struct{}, 1)); close(done) }()
	cancel()
	<-done
	(&Kernel{Root: t.TempDir()}).Stalls(t.Context(), nil) // a kernel without
}

func BenchmarkLook(b *testing.B) {
	k := &Kernel{NodeFs: "/", ImageFs: "/"}
	seen := Observations{}
	b.ReportAllocs()
	for b.Loop() {
		k.Read(seen)
	}
}
