package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/runner"
)

// The benchmarks of this file cover the whole daemon, from real files to a runtime in memory: they measure all of monopod between a
// manifest and containerd. `make bench-scale` runs them.

const scalePatience = 5 * time.Minute

// scaleManifest is a pod of ordinary size. Another revision changes its container.
func scaleManifest(name string, revision int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  labels: {app: %[1]s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: registry.example/app:1
    command: [serve]
    env:
    - {name: REVISION, value: "%d"}
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {memory: 128Mi}
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    hostPath: {path: /srv/%[1]s, type: DirectoryOrCreate}
`, name, revision)
}

// firsts records when the plan of a pod reaches the runtime, with its first action, and when any pod last acted.
type firsts struct {
	mu      sync.Mutex
	planned map[manifests.Key]bool
	at      time.Time // when the last of these was
	last    time.Time
	done    int // containers that were started
}

func (f *firsts) act(key manifests.Key, a runner.Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
	if !f.planned[key] {
		f.planned[key], f.at = true, f.last
	}
	if a.Kind == runner.StartContainer {
		f.done++
	}
	return nil
}

func (f *firsts) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.planned, f.done = map[manifests.Key]bool{}, 0
}

// ended returns when any pod last acted.
func (f *firsts) ended() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// until waits until a number of containers were started, and for the actions that follow. It returns when the last pod was planned.
func (f *firsts) until(b *testing.B, running int) time.Time {
	b.Helper()
	deadline := time.Now().Add(scalePatience)
	for {
		f.mu.Lock()
		n, at, done, quiet := len(f.planned), f.at, f.done, time.Since(f.last) > 50*time.Millisecond
		f.mu.Unlock()
		if done >= running && quiet {
			return at
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d pods are planned and %d run of %d", n, done, running)
		}
		time.Sleep(time.Millisecond)
	}
}

// newScale prepares a daemon with n manifests.
func newScale(b *testing.B, n int) (*clitest.Daemon, *firsts) {
	b.Helper()
	d := newDaemon(b, "maxPods: 10000")
	config, err := os.ReadFile(d.Path("config.yaml"))
	if err != nil {
		b.Fatal(err)
	}
	testfiles.Write(b, d.Path("config.yaml"), string(regexp.MustCompile(`(?m)^logging:.*$`).ReplaceAll(config, []byte("logging: {level: error}"))))
	d.Patience = scalePatience
	for i := range n {
		d.Put(fmt.Sprintf("pod-%05d.yaml", i), scaleManifest(fmt.Sprintf("pod-%05d", i), 0))
	}
	f := &firsts{planned: map[manifests.Key]bool{}}
	d.Fake.Fail = f.act
	return d, f
}

func scales() []int { return []int{1000, 3000, 10000} }

// growth compares the cost per pod with that of the smallest measurement, which is 1.00.
type growth struct{ first float64 }

// of returns the relative cost of one of n pods that cost total together.
func (g *growth) of(total float64, n int) float64 {
	each := total / float64(n)
	if g.first == 0 {
		g.first = each
	}
	return each / g.first
}

// BenchmarkScaleCold starts a daemon on a directory of manifests. planned-ms is the time until the first action of the last pod reaches the
// runtime: by then all were read, validated, compared with running pods, and planned. An operation ends when all run on the fake.
func BenchmarkScaleCold(b *testing.B) {
	var ofTime, ofCPU, ofHeap growth
	for _, n := range scales() {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			var planned, running, cpu, written time.Duration
			var live float64
			for b.Loop() {
				b.StopTimer()
				d, f := newScale(b, n)
				before, used := liveMiB(), cpuTime(b)
				b.StartTimer()
				began := time.Now()
				d.Start()
				at := f.until(b, n)
				planned += at.Sub(began)
				running += f.ended().Sub(began)
				b.StopTimer()
				cpu += cpuTime(b) - used
				d.Eventually("each pod has a revision", func() error { return stored(d, n) })
				written += cpuTime(b) - used
				live += liveMiB() - before
				d.End()
				b.StartTimer()
			}
			b.ReportMetric(float64(planned.Milliseconds())/float64(b.N), "planned-ms")
			b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms")
			b.ReportMetric(live/float64(b.N), "MiB-live")
			b.ReportMetric(ofTime.of(running.Seconds()/float64(b.N), n), "x-time/pod")
			b.ReportMetric(float64(written.Milliseconds())/float64(b.N), "cpu-ms-stored")
			b.ReportMetric(ofCPU.of(written.Seconds()/float64(b.N), n), "x-cpu/pod") // of all: the first revisions of many pods are written while others start yet
			b.ReportMetric(ofHeap.of(live/float64(b.N), n), "x-live/pod")
		})
	}
}

// liveMiB returns the size of the heap of this process, without garbage.
func liveMiB() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// cpuTime returns the CPU time of this process, which hardly depends on the load of the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// calm returns a daemon with n pods that all run.
func calm(b *testing.B, n int) (*clitest.Daemon, *firsts) {
	b.Helper()
	d, f := newScale(b, n)
	d.Start()
	f.until(b, n)
	d.Eventually("each pod has a revision", func() error { return stored(d, n) }) // writing them is work of the start
	return d, f
}

// reportEach reports the median duration and the cost.
func reportEach(b *testing.B, took []time.Duration, cpu time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
	b.ReportMetric(float64(cpu.Microseconds())/1000/float64(len(took)), "cpu-ms/each")
}

// BenchmarkScaleEdit renames a changed manifest into place while other pods run, and measures the time until the first action of the new
// plan reaches the runtime.
func BenchmarkScaleEdit(b *testing.B) {
	for _, n := range scales() {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			d, f := calm(b, n)
			var took []time.Duration
			used := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				f.forget()
				name := fmt.Sprintf("pod-%05d", i*7919%n)
				tmp := d.Path("manifests", ".edited")
				testfiles.Write(b, tmp, scaleManifest(name, i+1))
				b.StartTimer()
				began := time.Now()
				if err := os.Rename(tmp, d.Path("manifests", name+".yaml")); err != nil {
					b.Fatal(err)
				}
				took = append(took, f.until(b, 1).Sub(began))
			}
			reportEach(b, took, cpuTime(b)-used)
			d.End()
		})
	}
}

// BenchmarkScaleExit ends the process of one pod while others run, and measures the time until the next action reaches the runtime.
func BenchmarkScaleExit(b *testing.B) {
	for _, n := range scales() {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			d, f := calm(b, n)
			var took []time.Duration
			used := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				f.forget()
				key := manifests.Key{Namespace: "default", Name: fmt.Sprintf("pod-%05d", i*7919%n)}
				b.StartTimer()
				began := time.Now()
				if err := d.Fake.Exit(key, "main", 1); err != nil {
					b.Fatal(err)
				}
				took = append(took, f.until(b, 1).Sub(began))
			}
			reportEach(b, took, cpuTime(b)-used)
			d.End()
		})
	}
}

// BenchmarkScaleIdle measures the cost of idle pods over two periodic reads of their files.
func BenchmarkScaleIdle(b *testing.B) {
	const long = 45 * time.Second
	for _, n := range append([]int{0}, scales()...) {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			d, _ := calm(b, n)
			time.Sleep(5 * time.Second)
			var used time.Duration
			var switches int64
			for b.Loop() {
				before, woken := cpuTime(b), wakeups(b)
				time.Sleep(long)
				used, switches = used+cpuTime(b)-before, switches+wakeups(b)-woken
			}
			b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N)/long.Minutes(), "cpu-ms/min")
			b.ReportMetric(float64(switches)/float64(b.N)/long.Seconds(), "wakeups/s")
			d.End()
		})
	}
}

// wakeups returns how often threads of this process have blocked.
func wakeups(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Nvcsw
}

// BenchmarkScaleMemory measures the resident memory of a process with a number of pods, compared with none: the daemon and, in the same
// process, the fake that replaces containerd. extra is the memory once a revision of each pod is on disk, idle is half a minute later,
// after a periodic read of all files, peak is the maximum until then.
func BenchmarkScaleMemory(b *testing.B) {
	for _, n := range scales() {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			var sum resident
			for b.Loop() {
				none, some := measureResident(b, 0), measureResident(b, n)
				sum.rest += some.rest - none.rest
				sum.idle += some.idle - none.idle
				sum.peak += some.peak - none.peak
			}
			b.ReportMetric(sum.rest/float64(b.N), "MiB-extra")
			b.ReportMetric(sum.idle/float64(b.N), "MiB-extra-idle")
			b.ReportMetric(sum.peak/float64(b.N), "MiB-extra-peak")
		})
	}
}

// resident is the memory of a process in MiB.
type resident struct{ rest, idle, peak float64 }

// measureResident runs a daemon with n pods.
func measureResident(b *testing.B, n int) resident {
	b.Helper()
	d, _ := newScale(b, n)
	child := d.Child(false)
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	d.Eventually("each pod has a revision", func() error {
		if _, err := os.Stat(d.Path("run", "monopod.sock")); err != nil {
			return err
		}
		return stored(d, n)
	})
	now := func() float64 { return statusMiB(b, child.Process.Pid, "VmRSS") }
	var r resident
	for calm, began := 0, time.Now(); calm < 5 && time.Since(began) < scalePatience; calm++ {
		was := r.rest
		time.Sleep(time.Second)
		if r.rest = now(); math.Abs(r.rest-was) > 0.5 {
			calm = 0
		}
	}
	time.Sleep(30 * time.Second)
	r.idle, r.peak = now(), statusMiB(b, child.Process.Pid, "VmHWM")
	return r
}

// stored checks that a revision of each of n pods is on disk.
func stored(d *clitest.Daemon, n int) error {
	if dirs, _ := os.ReadDir(d.Path("root", "revisions", "default")); len(dirs) < n { // it is a lot of work to look into each
		return fmt.Errorf("revisions of %d pods at most", len(dirs))
	}
	states, err := filepath.Glob(d.Path("root", "revisions", "*", "*", "state"))
	if err == nil && len(states) < n {
		err = fmt.Errorf("revisions of %d pods", len(states))
	}
	return err
}

// statusMiB reads a size of a process.
func statusMiB(b *testing.B, pid int, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		b.Fatalf("no %s in %s", field, text)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
