//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
	"monopod/node/apiserver/apitest"
)

// soak is chaos with more pods and more components: an external containerd, a registry, an API server, and a disk that fills up.
type soak struct {
	*chaos
	containerd *daemon
	registry   *flaky
	api        *apitest.Server
	proxy      *apitest.Proxy
	disk       string
	// ending has the functions that stop lasting faults, by what they affect.
	ending map[string]func()
}

// Limits on what an agent may use more than after its first startup, after trouble or a restart: a quarter of its memory; heap after
// garbage collection, in KiB; files, threads and goroutines. Go keeps as many threads as ever waited for the kernel at once, which are most
// on a full disk.
const (
	moreHeap       = 1 << 10
	moreFiles      = 10
	moreThreads    = 32
	moreGoroutines = 3
)

// TestSoak replaces pods while it kills containers, shims, containerd and the agent, fills the disk at times, and makes the registry and the
// API server unreachable, slow or silent. After the last round, the desired pods run and the API server shows them, nothing is left
// behind, and the agent uses no more resources than after startup. MONOPOD_SOAK=30m sets the duration, with a hundred pods and without the
// race detector; MONOPOD_CHAOS_SEED=n repeats a run.
func TestSoak(t *testing.T) {
	pods, long := 16, os.Getenv("MONOPOD_SOAK") != ""
	if long {
		pods = 100
	}
	duration, err := time.ParseDuration(or(os.Getenv("MONOPOD_SOAK"), "15s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(or(os.Getenv("MONOPOD_CHAOS_SEED"), strconv.FormatInt(time.Now().Unix(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("MONOPOD_CHAOS_SEED=%d", seed)
	s := newSoak(t, seed, pods)
	s.in.start()
	empty := s.in.census()
	s.fill()
	first := s.emptied(empty)
	s.fill()
	began, rounds := time.Now(), 0
	for ; time.Since(began) < duration; rounds++ {
		if !s.spare && time.Since(began) > duration*2/3 { // one agent lives through the rest
			s.spare = true
			s.restart()
		}
		s.round()
	}
	t.Logf("%d rounds in %v: %v", rounds, time.Since(began).Round(time.Second), s.done)
	s.reported()
	old := s.emptied(empty)

	s.compare(first, old, "after all")
	if long { // the same life as at the beginning, after all that: of a new process, as the first one was
		s.restart()
		s.fill()
		s.compare(first, s.emptied(empty), "a new one")
	}
	s.nothingLeft()
}

// footprint is the resource usage of the agent; memory is in KiB.
type footprint struct {
	rss, heap, open, threads, goroutines int
	// stacks are the stacks of the goroutines.
	stacks string
}

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MiB, heap %.1f MiB, %d files, %d threads, %d goroutines", float64(f.rss)/1024, float64(f.heap)/1024, f.open, f.threads, f.goroutines)
}

// compare fails the test if the agent uses more resources than at startup.
func (s *soak) compare(first, last footprint, what string) {
	s.t.Helper()
	s.t.Logf("the agent without pods, after %d pods: at the start %v; %s %v", len(s.pods), first, what, last)
	if last.exceeds(first) {
		s.t.Errorf("the agent takes more than at its start: %v, then %v\ngoroutines at the start:\n%s\nnow:\n%s", first, last, first.stacks, last.stacks)
	}
}

// exceeds reports whether it uses more than another.
func (f footprint) exceeds(first footprint) bool {
	return f.rss > first.rss+first.rss/4 || f.heap > first.heap+moreHeap || f.open > first.open+moreFiles || f.threads > first.threads+moreThreads ||
		f.goroutines > first.goroutines+moreGoroutines
}

// newSoak prepares the machine: the directories of containerd and monopod are on a small disk of their own, the manifests are not.
func newSoak(t *testing.T, seed uint64, pods int) *soak {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	s := &soak{disk: smallDisk(t, "1G"), registry: newFlaky(t), ending: map[string]func(){}, api: apitest.Start(t, apitest.Options{})}
	s.proxy = apitest.NewProxy(t, s.api.Address)
	s.containerd = startContainerdIn(t, filepath.Join(s.disk, "containerd"))
	in := newInstanceIn(t, filepath.Join(s.disk, "monopod"),
		"containerRuntimeEndpoint: unix://"+s.containerd.socket, "crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "fileCheckFrequency: 5s",
		"kubeconfig: "+s.api.Kubeconfig(s.proxy.Address(), apitest.Node("e2e")), "nodeLeaseDurationSeconds: 4", "enableProfilingHandler: true")
	if os.Getenv("MONOPOD_SOAK") != "" {
		in.agent = "monopod-client" // the same without the race detector
	}
	in.shims = s.containerd.state()
	t.Cleanup(in.cleanup)
	t.Cleanup(func() { // before the instance's own
		s.calm()
		s.containerd.revive()
		if path := os.Getenv("MONOPOD_CHAOS_LOG"); path != "" && t.Failed() {
			_ = os.WriteFile(path, []byte(in.log.String()), 0o644)
		}
	})
	elsewhere := t.TempDir()
	in.write(in.config, strings.Replace(in.read("config.yaml"), in.manifests, elsewhere+"/manifests", 1))
	in.manifests = elsewhere + "/manifests"
	if err := os.Mkdir(in.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	s.chaos = &chaos{t: t, in: in, rnd: newRand(seed), id: strconv.Itoa(os.Getpid()), done: map[string]int{}, ends: s.calm}
	for i := range pods {
		p := newChaosPod(t, i)
		if i%10 == 4 {
			p.image, p.pull = s.registry.image, "Always"
		}
		s.pods = append(s.pods, p)
	}
	s.more = []kind{
		{4, "kill containerd", s.killContainerd},
		{4, "full disk", s.fullDisk},
		{4, "dead registry", s.deadRegistry},
		{4, "bad API server", s.badAPIServer},
		{1, "dead API server", s.deadAPIServer},
	}
	return s
}

// fill starts all pods.
func (s *soak) fill() {
	s.t.Helper()
	s.story = []string{"all pods"}
	for _, p := range s.pods {
		p.edited = false
		s.accept(p, p.def)
	}
	began := time.Now()
	_ = s.quiet()
	s.t.Logf("%d pods run after %v", len(s.pods), time.Since(began).Round(time.Millisecond))
}

// emptied removes all pods, and returns the resource usage of the agent without them.
func (s *soak) emptied(before map[string]int) footprint {
	s.t.Helper()
	s.story = []string{"removal of everything"}
	for _, p := range s.pods {
		s.remove(p)
	}
	_ = s.quiet()
	s.in.sameCensus(before)
	s.reported()
	return s.in.footprint()
}

// reported waits until the API server shows the existing pods and a healthy machine.
func (s *soak) reported() {
	s.t.Helper()
	s.in.eventually("the API server shows what there is", func() error {
		local, err := s.in.pods()
		if err != nil {
			return err
		}
		var mirrors corev1.PodList
		if err := s.api.Do(http.MethodGet, "/api/v1/pods", nil, &mirrors); err != nil {
			return err
		}
		for i := range mirrors.Items {
			m := &mirrors.Items[i]
			p, there := local[strings.TrimSuffix(m.Name, "-e2e")]
			if !there || m.DeletionTimestamp != nil {
				return fmt.Errorf("%s is there", m.Name)
			}
			if got := m.Annotations[corev1.MirrorPodAnnotationKey]; got == "" || m.Status.Phase != p.Status.Phase || isReady(*m) != isReady(p) {
				return fmt.Errorf("%s is %s, and here %s", m.Name, brief(*m), brief(p))
			}
		}
		if len(mirrors.Items) != len(local) {
			return fmt.Errorf("%d of %d pods are there", len(mirrors.Items), len(local))
		}
		var node corev1.Node
		if err := s.api.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the node is %+v", node.Status.Conditions)
	})
}

// footprint waits until the resource usage of the agent is stable for some seconds, and returns it.
func (in *instance) footprint() footprint {
	var last footprint
	same := 0
	in.eventually("what the agent takes stays the same", func() error {
		time.Sleep(time.Second) // it is looked at once a second
		now, err := in.look()
		if err != nil {
			return err
		}
		if same++; now.open != last.open || now.goroutines != last.goroutines || now.rss > last.rss+256 || now.rss < last.rss-256 {
			same = 0
		}
		if last = now; same < 3 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	_, inUse, _ := strings.Cut(in.curl("/debug/pprof/heap?gc=1&debug=1"), "\n# HeapAlloc = ")
	var err error
	if last.heap, err = strconv.Atoi(strings.SplitN(inUse, "\n", 2)[0]); err != nil {
		in.t.Fatal(err)
	}
	last.heap >>= 10
	return last
}

// look returns the current resource usage of the agent, except for the heap.
func (in *instance) look() (footprint, error) {
	now := footprint{open: in.open(), threads: count(fmt.Sprintf("/proc/%d/task/*", in.cmd.Process.Pid))}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.cmd.Process.Pid))
	if err != nil {
		return now, err
	}
	_, rss, _ := strings.Cut(string(status), "VmRSS:")
	if now.rss, err = strconv.Atoi(strings.Fields(rss)[0]); err != nil {
		return now, err
	}
	now.stacks = in.curl("/debug/pprof/goroutine?debug=1")
	_, err = fmt.Sscanf(now.stacks, "goroutine profile: total %d", &now.goroutines)
	return now, err
}

// nothingLeft stops the agent and checks containerd.
func (s *soak) nothingLeft() {
	if err := s.in.signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	_ = s.containerd.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.containerd.cmd.Wait()
	s.containerd.dead = true
	// Work that a killed agent left unfinished keeps its lease until that expires, as do pulls that can be resumed: at most two images.
	if n := recordsAt(s.t, filepath.Join(s.disk, "containerd")); n["containers"]+n["sandboxes"] != 0 || n["leases"] > 2 || n["snapshots"] > 2 {
		s.t.Errorf("records left in containerd: %v", n)
	}
	tasks, err := filepath.Glob(filepath.Join(s.containerd.dir, "state", "io.containerd.runtime.v2.task", "*", "*"))
	// A containerd that is killed while it removes a bundle leaves it under a hidden name, and ignores it from then on.
	tasks = slices.DeleteFunc(tasks, func(task string) bool { return strings.HasPrefix(filepath.Base(task), ".") })
	if err != nil || len(tasks) > 0 {
		s.t.Errorf("tasks left in containerd: %v, %v", tasks, err)
	}
}

// calm ends ongoing faults.
func (s *soak) calm() {
	for what, end := range s.ending {
		end()
		delete(s.ending, what)
	}
}

// once begins a lasting fault; the next call ends it.
func (s *soak) once(what string, begin func() (end func())) string {
	if end := s.ending[what]; end != nil {
		end()
		delete(s.ending, what)
		return what + " no more"
	}
	s.ending[what] = begin()
	return what
}

func (s *soak) killContainerd() string {
	s.containerd.kill9()
	time.Sleep(time.Duration(s.rnd.IntN(500)) * time.Millisecond) // as long as it is away
	s.containerd.start()
	return "kill -9 of containerd"
}

func (s *soak) fullDisk() string {
	return s.once("full disk", func() func() {
		path := filepath.Join(s.disk, "ballast")
		f, err := os.Create(path)
		if err != nil {
			s.t.Fatal(err)
		}
		defer f.Close()
		for size := int64(1 << 28); size >= 1<<12; { // fallocate gives all that there is in ever smaller pieces
			at, err := f.Seek(0, 2)
			if err != nil {
				s.t.Fatal(err)
			}
			if err := syscall.Fallocate(int(f.Fd()), 0, at, size); err != nil {
				size /= 2
			}
		}
		return func() {
			if err := os.Remove(path); err != nil {
				s.t.Fatal(err)
			}
		}
	})
}

func (s *soak) deadRegistry() string {
	return s.once("dead registry", func() func() {
		s.registry.dead.Store(true)
		return func() { s.registry.dead.Store(false) }
	})
}

// badAPIServer makes the API server misbehave in a random way.
func (s *soak) badAPIServer() string {
	bad := []apitest.Mode{{Silent: true}, {Refuse: true}, {CutAfter: 500}, {Delay: 300 * time.Millisecond}}[s.rnd.IntN(4)]
	return s.once("bad API server", func() func() {
		s.proxy.Set(bad)
		return func() { s.proxy.Set(apitest.Mode{}) }
	})
}

// deadAPIServer kills the API server, which later restarts with the data in etcd.
func (s *soak) deadAPIServer() string {
	return s.once("dead API server", func() func() {
		s.api.Stop()
		return s.api.Start
	})
}

// flaky is a registry that can be down: it then accepts connections, and closes them.
type flaky struct {
	image string
	dead  atomic.Bool
}

func newFlaky(t *testing.T) *flaky {
	t.Helper()
	f := &flaky{}
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.dead.Load() {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.image = strings.TrimPrefix(server.URL, "http://") + "/soak:1"
	testimages.Push(t, f.image, testimages.Busybox(t, nil))
	return f
}

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	image, at := filepath.Join(dir, "disk.img"), filepath.Join(dir, "disk")
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	for _, c := range [][]string{{"truncate", "-s", size, image}, {"mkfs.ext4", "-q", "-m", "0", image}, {"mkdir", "-p", at}, {"mount", "-o", "loop", image, at}, {"mkdir", at + "/monopod"}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c, err, out)
		}
	}
	return at
}
