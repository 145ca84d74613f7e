// Package shim is a slim build of containerd's runc shim. It owns the process between containerd and one container, and extends
// containerd's task service:
//   - the exit of the init process is written to a file before any client can learn of it;
//   - the termination message is copied to disk before that;
//   - the log FIFOs stay open until the task is deleted, so output without a reader waits in the kernel;
//   - a stopped task keeps its pid, so that a containerd that starts later does not clean it up;
//   - the remaining processes of an init process without a PID namespace of its own are killed with it;
//   - a stopped container is deleted without running runc, if package runcdelete supports that.
//
// It must not know pods, policies or the agent: it communicates through OCI annotations and files only.
//
// Goroutines: only those of containerd's shim.
package shim

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	shimrunc "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/runc"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/go-runc"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/shim/early/deleted"
	"monopod/runner/ctrd/shim/runcdelete"
)

// Annotations of the OCI spec that the shim reads.
const (
	// AnnotationExitFile is the path of the file for an ExitRecord in JSON, written when the init process exits.
	AnnotationExitFile = "monopod.dev/exit-file"
	// AnnotationMessage is the path of the termination message, which is in memory. AnnotationMessageCopy is the path to which its end is
	// copied when the init process exits.
	AnnotationMessage     = "monopod.dev/message-file"
	AnnotationMessageCopy = "monopod.dev/message-copy"
	// AnnotationDelete is DeleteInProcess if the shim may delete the container without runc. Its OCI runtime must be runc, not that of a
	// RuntimeClass.
	AnnotationDelete = "monopod.dev/delete"
	DeleteInProcess  = "in-process"
)

// BinaryName is the name of the shim program.
const BinaryName = "containerd-shim-monopod-v2"

// cgroupsVariable contains the cgroup directories for the shim, one per line.
const cgroupsVariable = "MONOPOD_SHIM_CGROUPS"

// InCgroups returns the environment that makes shims start in these cgroup directories. Without it, they stay in those of the process that
// starts them.
func InCgroups(dirs []string) []string {
	if len(dirs) == 0 {
		return nil
	}
	return []string{cgroupsVariable + "=" + strings.Join(dirs, "\n")}
}

// runtimeName is the name that the shim reports; containers store the path of the program as the name of their runtime.
const runtimeName = "io.containerd.monopod.v2"

// Main is the main function of the shim binary.
func Main() {
	// The shim mostly waits. One processor saves a fifth of its private memory; containerd would set 4.
	runtime.GOMAXPROCS(1)
	// When the agent exits, our process group loses its parent; if one of its processes is stopped at that moment, the kernel sends SIGHUP
	// to all. Ignoring the signal is not possible: programs that we start would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskPlugin,
	})
	shim.RunShim(context.Background(), actions{manager.NewShimManager(runtimeName)}, func(c *shim.Config) { c.NoSetupLogger = true })
}

// newTaskPlugin creates the task service. It runs only in the serving process, not for "start" and "delete".
func newTaskPlugin(ic *plugin.InitContext) (any, error) {
	pub, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	sd, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	setLogger()
	ws := newWatchers()
	svc, err := task.NewTaskService(ic.Context, &publisher{Publisher: pub.(shim.Publisher), ws: ws}, sd.(shutdown.Service))
	if err != nil {
		return nil, err
	}
	runc.Monitor = &runcdelete.Monitor{ProcessMonitor: runc.Monitor, Allowed: ws.deletesInProcess, Deleted: ws.unmount}
	return &service{TTRPCTaskService: svc, ws: ws}, nil
}

// actions implements "start", which containerd runs for a new shim, and "delete", which it runs when its connection to a shim has closed,
// for whatever reason.
type actions struct {
	shim.Shim
}

// Start implements shim.Shim. This process, which exits soon, moves to the cgroup first, so that no page of the shim is charged to the
// process that starts it.
func (s actions) Start(ctx context.Context, p *bootstrap.BootstrapParams) (*bootstrap.BootstrapResult, error) {
	if dirs := os.Getenv(cgroupsVariable); dirs != "" {
		for dir := range strings.SplitSeq(dirs, "\n") {
			enterCgroup(dir)
		}
		_ = os.Unsetenv(cgroupsVariable) // it is nobody's else
	}
	return s.Shim.Start(ctx, p)
}

// Stop implements shim.Shim. After an orderly exit it does nothing, and does not call the OCI runtime. If the shim died, this kills the
// container, and only this process learns how it exited.
func (s actions) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return shim.StopStatus{}, err
	}
	// The bundle is the working directory or, for containers of another shim, a directory next to it.
	bundle := filepath.Join(filepath.Dir(cwd), id)
	if deleted.Is(bundle) { // without an answer: package early would have given that
		e, err := shimrunc.ReadExitStatus(bundle)
		return shim.StopStatus{Pid: e.Pid, ExitStatus: e.Status, ExitedAt: e.Timestamp}, err
	}
	exitFile := readBundle(bundle).exitFile()
	st, err := s.Shim.Stop(ctx, id)
	if err != nil || exitFile == "" {
		return st, err
	}
	if _, err := os.Stat(exitFile); err == nil {
		return st, nil
	}
	return st, writeExitRecord(exitFile, ExitRecord{ExitCode: st.ExitStatus, ExitedAt: st.ExitedAt})
}
