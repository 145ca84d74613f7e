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
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"monopod/e2e/testimages"
)

// soak is chaos with more pods and with what is around them: a containerd of its own, a registry, and a disk that fills up.
type soak struct {
	*chaos
	containerd *daemon
	registry   *flaky
	disk       string
	// ending are the pieces of trouble that go on, by what they are about.
	ending map[string]func()
}

// TestSoak has pods churn while containers, shims, containerd and the agent are killed, the disk is full now and then,
// and the registry is away. At the end what is desired runs, nothing is left behind, and the agent takes no more than at its start.
// MONOPOD_SOAK=30m is how long, with a hundred pods; MONOPOD_CHAOS_SEED=n repeats a run.
func TestSoak(t *testing.T) {
	pods := 24
	if os.Getenv("MONOPOD_SOAK") != "" {
		pods = 100
	}
	duration, err := time.ParseDuration(or(os.Getenv("MONOPOD_SOAK"), "20s"))
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
		s.round()
	}
	t.Logf("%d rounds in %v: %v", rounds, time.Since(began).Round(time.Second), s.done)
	s.emptied(empty)

	// The same life as at the beginning, after all that: of a new process, as the first one was.
	s.restart()
	s.fill()
	last := s.emptied(empty)
	t.Logf("the agent without pods, after %d pods, at the start and at the end: %v, %v", len(s.pods), first, last)
	if last.rss > first.rss+first.rss/4 || last.open > first.open+10 || last.threads > first.threads+10 {
		t.Errorf("the agent takes more than at its start: %v, then %v", first, last)
	}
	s.nothingLeft()
}

// footprint is what the agent takes.
type footprint struct{ rss, open, threads int }

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MiB, %d files, %d threads", float64(f.rss)/1024, f.open, f.threads)
}

// newSoak prepares the machine: the directories of containerd and monopod are on a small disk of their own, the manifests are not.
func newSoak(t *testing.T, seed uint64, pods int) *soak {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	s := &soak{disk: smallDisk(t, "1G"), registry: newFlaky(t), ending: map[string]func(){}}
	s.containerd = startContainerdIn(t, filepath.Join(s.disk, "containerd"))
	in := newInstanceIn(t, filepath.Join(s.disk, "monopod"),
		"containerRuntimeEndpoint: unix://"+s.containerd.socket, "crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "fileCheckFrequency: 5s")
	in.shims = filepath.Join(s.containerd.dir, "state")
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
		p := newChaosPod(i)
		if i%10 == 4 {
			p.image, p.pull = s.registry.image, "Always"
		}
		s.pods = append(s.pods, p)
	}
	s.more = []kind{
		{4, "kill containerd", s.killContainerd},
		{4, "full disk", s.fullDisk},
		{4, "dead registry", s.deadRegistry},
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

// emptied removes all pods, and returns what the agent takes then.
func (s *soak) emptied(before map[string]int) footprint {
	s.t.Helper()
	s.story = []string{"removal of everything"}
	for _, p := range s.pods {
		s.remove(p)
	}
	_ = s.quiet()
	s.in.sameCensus(before)
	return s.in.footprint()
}

// footprint waits until the agent takes the same for some seconds, and returns that.
func (in *instance) footprint() footprint {
	var last footprint
	same := 0
	in.eventually("what the agent takes stays the same", func() error {
		time.Sleep(time.Second) // it is looked at once a second
		now := footprint{open: in.open(), threads: count(fmt.Sprintf("/proc/%d/task/*", in.cmd.Process.Pid))}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.cmd.Process.Pid))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(status)) {
			if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				if now.rss, err = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kb), " kB")); err != nil {
					return err
				}
			}
		}
		if same++; now.open != last.open || now.rss > last.rss+256 || now.rss < last.rss-256 {
			same = 0
		}
		if last = now; same < 3 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	return last
}

// nothingLeft ends the agent and looks into containerd.
func (s *soak) nothingLeft() {
	if err := s.in.signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	_ = s.containerd.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.containerd.cmd.Wait()
	s.containerd.dead = true
	// What an agent was at work on that was killed keeps its lease until that expires, as do pulls that can go on: two images and no more.
	if n := recordsAt(s.t, filepath.Join(s.disk, "containerd")); n["containers"]+n["sandboxes"] != 0 || n["leases"] > 2 || n["snapshots"] > 2 {
		s.t.Errorf("records left in containerd: %v", n)
	}
	if n := count(filepath.Join(s.containerd.dir, "state", "io.containerd.runtime.v2.task", "*", "*")); n != 0 {
		s.t.Errorf("%d tasks left in containerd", n)
	}
}

// calm ends what goes on, so that it can become quiet.
func (s *soak) calm() {
	for what, end := range s.ending {
		end()
		delete(s.ending, what)
	}
}

// once begins a piece of trouble that goes on, unless it does already; the next call ends it.
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

// flaky is a registry that can be dead: it takes connections, and closes them.
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
