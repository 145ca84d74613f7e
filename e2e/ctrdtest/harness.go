//go:build e2e

package ctrdtest

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
)

// TestImage is the image that a World preloads.
const TestImage = "example.com/busybox:1"

// Check ends the test at an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// World is the directories of one instance.
type World struct {
	Dir  string // root, logs, images
	Run  string // state; short, because of the sockets in it
	CIDR string
	// endpoint is that of an external containerd.
	Endpoint   string
	Containerd *exec.Cmd
	// runtime is the OCI runtime; empty: runc.
	Runtime string
	Log     *slog.Logger
}

//nolint:gochecknoglobals // the worlds of a process share them
var (
	// Patience is the timeout of conditions.
	Patience = testbed.Patience()
	subnets  = testbed.Subnets{Prefix: "10.201"}
)

// NewWorld makes the directories, with an archive of the test image to preload.
func NewWorld(t testing.TB) *World {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "mp-ctrd-")
	Check(t, err)
	run, err := os.MkdirTemp("/run", "mpc")
	Check(t, err)
	w := &World{Dir: dir, Run: run, CIDR: subnets.Take(t)}
	w.Log = NewLog()
	Check(t, os.Mkdir(filepath.Join(dir, "images"), 0o755))
	testimages.Archive(t, filepath.Join(dir, "images", "busybox.tar"), TestImage)
	t.Cleanup(func() { w.remove(t) })
	return w
}

// NewLog returns a logger that writes warnings, and everything if CTRD_TEST_DEBUG is set.
func NewLog() *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("CTRD_TEST_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// remove checks that no mounts and cgroups are left.
func (w *World) remove(t testing.TB) {
	t.Helper()
	if c, err := cgroup.Find(spec.Cgroups{Root: w.Config().CgroupParent}); err != nil || c.RemoveEmpty(c.Root) != nil {
		t.Errorf("cgroup %s stays: %v", c.Root, err)
	}
	for _, d := range []string{w.Dir, w.Run} {
		if err := trees.Unmount(d); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	}
}

// Config returns the configuration of an instance.
func (w *World) Config() ctrd.Config {
	programs := os.Getenv(EnvPrograms)
	return ctrd.Config{
		RootDirectory:    filepath.Join(w.Dir, "root"),
		StateDirectory:   w.Run,
		PodLogsDir:       filepath.Join(w.Dir, "pods"),
		ContainerLogsDir: filepath.Join(w.Dir, "containers"),
		Endpoint:         w.Endpoint,
		OCIRuntime:       w.Runtime,
		ShimPath:         filepath.Join(programs, "containerd-shim-monopod-v2"),
		CgroupParent:     "/" + filepath.Base(w.Run),
		NodeName:         "node",
		NodeIPs:          func() []string { return []string{"192.0.2.1"} },
		ResolvConf:       "/etc/resolv.conf",
		CDIDirs:          []string{filepath.Join(w.Dir, "cdi")},
		Network: network.Config{
			ConfDir:    filepath.Join(w.Dir, "none"),
			OwnConfDir: filepath.Join(w.Dir, "cni"),
			BinDirs:    []string{filepath.Join(programs, "cni")},
			DataDir:    filepath.Join(w.Dir, "cnidata"),
			PodCIDR:    w.CIDR,
			Log:        w.Log,
		},
		Image: imagestore.Config{PreloadDirs: []string{filepath.Join(w.Dir, "images")}, Log: w.Log},
		Log:   w.Log,
	}
}

// Agent is a running Runtime.
type Agent struct {
	*ctrd.Runtime
	ctrd.Parts
	Cancel context.CancelFunc
	Ended  chan error
}

// Open starts a Runtime with its background work; stop ends it.
func (w *World) Open(t testing.TB) *Agent {
	t.Helper()
	return w.OpenWith(t, func(*ctrd.Config) {})
}

// OpenWith is open with another configuration.
func (w *World) OpenWith(t testing.TB, edit func(*ctrd.Config)) *Agent {
	t.Helper()
	cfg := w.Config()
	edit(&cfg)
	rt, err := ctrd.Open(context.Background(), cfg)
	Check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	a := &Agent{Runtime: rt, Parts: ctrd.PartsOf(rt), Cancel: cancel, Ended: make(chan error, 1)}
	go func() { a.Ended <- rt.Run(ctx) }()
	preloaded := make(chan error, 1)
	pctx, pcancel := context.WithCancel(ctx)
	preload := make(chan error, 1)
	go func() { preload <- rt.Preload(pctx, func(err error) { preloaded <- err }) }()
	Check(t, <-preloaded)
	pcancel()
	Check(t, <-preload)
	return a
}

// Stop ends the background work and closes the Runtime; the pods keep running.
func (a *Agent) Stop(t testing.TB) {
	t.Helper()
	a.Cancel()
	Check(t, <-a.Ended)
	Check(t, a.Close())
}

// End removes everything that the agent of a finished test would leave on the host.
func (a *Agent) End(t testing.TB) {
	t.Helper()
	defer a.Stop(t)
	a.Idle(t)
	Check(t, a.Net.Destroy(context.Background()))
}

// Idle waits until the teardown queue is empty.
func (a *Agent) Idle(t testing.TB) {
	t.Helper()
	Within(t, 15*time.Second, "the teardown is done", func() bool { return a.Removal.Teardown.Pending() == 0 })
}

// Within waits for a condition, for d or longer if the machine is slow.
func Within(t testing.TB, d time.Duration, what string, is func() bool) {
	t.Helper()
	d = max(d, Patience)
	for deadline := time.Now().Add(d); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is still not so that %s", d, what)
		}
	}
}

// Alive reports whether a process exists.
func Alive(pid uint32) bool { return unix.Kill(int(pid), 0) == nil }
