//go:build e2e

package ctrd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/trees"
	"monopod/runner/runtimetest"
	"monopod/runner/spec"
)

const testImage = "example.com/busybox:1"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is the directories of one instance.
type world struct {
	dir  string // root, logs, images
	run  string // state; short, because of the sockets in it
	cidr string
	// endpoint is that of an external containerd.
	endpoint   string
	containerd *exec.Cmd
	// runtime is the OCI runtime; empty: runc.
	runtime string
	log     *slog.Logger
}

var (
	patience = testbed.Patience()
	subnets  = testbed.Subnets{Prefix: "10.201"}
)

// newWorld makes the directories, with an archive of the test image to preload.
func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "mp-ctrd-")
	check(t, err)
	run, err := os.MkdirTemp("/run", "mpc")
	check(t, err)
	w := &world{dir: dir, run: run, cidr: subnets.Take(t)}
	w.log = testLog()
	check(t, os.Mkdir(filepath.Join(dir, "images"), 0o755))
	testimages.Archive(t, filepath.Join(dir, "images", "busybox.tar"), testImage)
	t.Cleanup(func() { w.remove(t) })
	return w
}

func testLog() *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("CTRD_TEST_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// remove checks that no mounts and cgroups are left.
func (w *world) remove(t testing.TB) {
	t.Helper()
	if c, err := cgroup.Find(spec.Cgroups{Root: w.config().CgroupParent}); err != nil || c.RemoveEmpty(c.Root) != nil {
		t.Errorf("cgroup %s stays: %v", c.Root, err)
	}
	for _, d := range []string{w.dir, w.run} {
		if err := trees.Unmount(d); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) config() Config {
	programs := os.Getenv(envPrograms)
	return Config{
		RootDirectory:    filepath.Join(w.dir, "root"),
		StateDirectory:   w.run,
		PodLogsDir:       filepath.Join(w.dir, "pods"),
		ContainerLogsDir: filepath.Join(w.dir, "containers"),
		Endpoint:         w.endpoint,
		OCIRuntime:       w.runtime,
		ShimPath:         filepath.Join(programs, "containerd-shim-monopod-v2"),
		CgroupParent:     "/" + filepath.Base(w.run),
		NodeName:         "node",
		NodeIPs:          func() []string { return []string{"192.0.2.1"} },
		ResolvConf:       "/etc/resolv.conf",
		CDIDirs:          []string{filepath.Join(w.dir, "cdi")},
		Network: network.Config{
			ConfDir:    filepath.Join(w.dir, "none"),
			OwnConfDir: filepath.Join(w.dir, "cni"),
			BinDirs:    []string{programs},
			DataDir:    filepath.Join(w.dir, "cnidata"),
			PodCIDR:    w.cidr,
			Log:        w.log,
		},
		Image: imagestore.Config{PreloadDirs: []string{filepath.Join(w.dir, "images")}, Log: w.log},
		Log:   w.log,
	}
}

// agent is a running Runtime.
type agent struct {
	*Runtime
	cancel context.CancelFunc
	ended  chan error
}

// open starts a Runtime with its background work; stop ends it.
func (w *world) open(t testing.TB) *agent {
	t.Helper()
	return w.openWith(t, func(*Config) {})
}

// openWith is open with another configuration.
func (w *world) openWith(t testing.TB, edit func(*Config)) *agent {
	t.Helper()
	cfg := w.config()
	edit(&cfg)
	rt, err := Open(context.Background(), cfg)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{Runtime: rt, cancel: cancel, ended: make(chan error, 1)}
	go func() { a.ended <- rt.Run(ctx) }()
	preloaded := make(chan error, 1)
	pctx, pcancel := context.WithCancel(ctx)
	preload := make(chan error, 1)
	go func() { preload <- rt.Preload(pctx, func(err error) { preloaded <- err }) }()
	check(t, <-preloaded)
	pcancel()
	check(t, <-preload)
	return a
}

func (a *agent) stop(t testing.TB) {
	t.Helper()
	a.cancel()
	check(t, <-a.ended)
	check(t, a.Close())
}

// end removes everything that the agent of a finished test would leave on the host.
func (a *agent) end(t testing.TB) {
	t.Helper()
	defer a.stop(t)
	a.idle(t)
	check(t, a.net.Destroy(context.Background()))
}

// idle waits until the teardown queue is empty.
func (a *agent) idle(t testing.TB) {
	t.Helper()
	within(t, 15*time.Second, "the teardown is done", func() bool { return a.removal.Teardown.Pending() == 0 })
}

// within waits for a condition, for d or longer if the machine is slow.
func within(t testing.TB, d time.Duration, what string, is func() bool) {
	t.Helper()
	d = max(d, patience)
	for deadline := time.Now().Add(d); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is still not so that %s", d, what)
		}
	}
}

func alive(pid uint32) bool { return unix.Kill(int(pid), 0) == nil }

func (w *world) harness(t *testing.T) runtimetest.Harness {
	a := w.open(t)
	t.Cleanup(func() { a.end(t) })
	return runtimetest.Harness{
		Runtime: a,
		Restart: func(t *testing.T, meanwhile func()) runner.Runtime {
			a.stop(t)
			if meanwhile != nil {
				meanwhile()
			}
			*a = *w.open(t)
			return a
		},
		Image:        testImage,
		MissingImage: "example.com/missing:1",
		KillProcess:  func(pid uint32) error { return unix.Kill(int(pid), unix.SIGKILL) },
		ProcessAlive: alive,
		OOM:          true,
		PodNetwork:   true,
	}
}

func TestTheEmbeddedContainerdPassesTheContract(t *testing.T) {
	runtimetest.Contract(t, func(t *testing.T) runtimetest.Harness { return newWorld(t).harness(t) })
}

func TestAnExternalContainerdPassesTheContract(t *testing.T) {
	runtimetest.Contract(t, func(t *testing.T) runtimetest.Harness {
		w := newWorld(t)
		w.startContainerd(t)
		return w.harness(t)
	})
}

// startContainerd runs a containerd of its own for the world.
func (w *world) startContainerd(t testing.TB) {
	t.Helper()
	if w.endpoint == "" {
		w.endpoint = "unix://" + filepath.Join(w.run, "c.sock")
		t.Cleanup(func() { w.stopContainerd(t) })
	}
	conf := filepath.Join(w.dir, "containerd.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.runtime\", \"io.containerd.cri.v1.images\"]\n"+
		"[grpc]\naddress = %q\n[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n",
		filepath.Join(w.dir, "croot"), filepath.Join(w.run, "c"), layout.EndpointPath(w.endpoint), filepath.Join(w.run, "s"))
	check(t, os.WriteFile(conf, []byte(text), 0o600))
	log, err := os.OpenFile(filepath.Join(w.dir, "containerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(t, err)
	defer func() { _ = log.Close() }()
	w.containerd = exec.Command(filepath.Join(os.Getenv(envPrograms), "containerd"), "--config", conf)
	w.containerd.Stdout, w.containerd.Stderr = log, log
	check(t, w.containerd.Start())
	within(t, 30*time.Second, "containerd listens", func() bool {
		c, err := net.Dial("unix", layout.EndpointPath(w.endpoint))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (w *world) stopContainerd(t testing.TB) {
	t.Helper()
	if w.containerd == nil {
		return
	}
	check(t, w.containerd.Process.Kill())
	_ = w.containerd.Wait()
	w.containerd = nil
}
