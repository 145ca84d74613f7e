// Package shim is our slim build of containerd's runc shim. It owns the process that stands between containerd
// and one container, and adds six things to containerd's own task service:
//
//   - the end of the init process is written to a file before anybody can learn of it;
//   - the termination message is copied to the disk before that;
//   - the log FIFOs stay open until the task is deleted, so output waits in the kernel while nobody reads;
//   - a stopped task still has a pid, so that a containerd that starts later keeps it instead of cleaning it up;
//   - what an init process without a PID namespace of its own leaves behind ends with it;
//   - a stopped container is deleted without running runc, where package runcdelete can do that.
//
// It must not know pods, policies or the agent: it talks through OCI annotations and files only.
//
// Goroutines: none of its own besides those of containerd's shim.
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
	// AnnotationExitFile is the path of the file that gets an ExitRecord as JSON when the init process ends.
	AnnotationExitFile = "monopod.dev/exit-file"
	// AnnotationMessage is the path of the termination message, which is in memory; AnnotationMessageCopy that of the
	// file that its end is copied to when the init process ends.
	AnnotationMessage     = "monopod.dev/message-file"
	AnnotationMessageCopy = "monopod.dev/message-copy"
	// AnnotationDelete has the value DeleteInProcess if the shim may delete the container without runc. Its OCI runtime
	// is runc then, not one of a RuntimeClass.
	AnnotationDelete = "monopod.dev/delete"
	DeleteInProcess  = "in-process"
)

// BinaryName is the name of the shim program.
const BinaryName = "containerd-shim-monopod-v2"

// cgroupsVariable has the directories of cgroups that the shim is to be in, a line each.
const cgroupsVariable = "MONOPOD_SHIM_CGROUPS"

// InCgroups is the environment that has shims be born in these directories of cgroups: else they are in those of who starts them.
func InCgroups(dirs []string) []string {
	if len(dirs) == 0 {
		return nil
	}
	return []string{cgroupsVariable + "=" + strings.Join(dirs, "\n")}
}

// runtimeName is what the shim calls itself. containers carry the path of the program as their runtime's name.
const runtimeName = "io.containerd.monopod.v2"

// Main is the main function of the shim binary.
func Main() {
	// The work is waiting. One processor saves a fifth of the private memory; containerd would set 4.
	runtime.GOMAXPROCS(1)
	// The end of the agent leaves our process group without a parent; when one of us is stopped at that moment, the
	// kernel sends SIGHUP to all. It must not be ignored, though: programs that we start would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskPlugin,
	})
	shim.RunShim(context.Background(), actions{manager.NewShimManager(runtimeName)}, func(c *shim.Config) { c.NoSetupLogger = true })
}

// newTaskPlugin makes the task service. It runs in the serving process only, not for "start" and "delete".
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

// actions has "start", which containerd runs for a new shim, and "delete", which it runs when its connection to a shim has
// closed, whatever the reason.
type actions struct {
	shim.Shim
}

// Start implements shim.Shim. This process, which ends soon, moves first, so that no page of the shim is charged to who starts it.
func (s actions) Start(ctx context.Context, p *bootstrap.BootstrapParams) (*bootstrap.BootstrapResult, error) {
	if dirs := os.Getenv(cgroupsVariable); dirs != "" {
		for dir := range strings.SplitSeq(dirs, "\n") {
			enterCgroup(dir)
		}
		_ = os.Unsetenv(cgroupsVariable) // it is nobody's else
	}
	return s.Shim.Start(ctx, p)
}

// Stop implements shim.Shim. After an orderly end there is nothing left to do, and the OCI runtime need not be
// asked. When the shim died instead, this kills the container, and nobody but us will ever know how it ended.
func (s actions) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return shim.StopStatus{}, err
	}
	// The bundle is the working directory or, for containers of another shim, its sibling.
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
