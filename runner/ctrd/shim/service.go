package shim

import (
	"context"
	"os"
	"path/filepath"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"monopod/runner/ctrd/shim/early/deleted"
)

// service is containerd's task service with an additional watcher per container. Every call that can report an exit writes the exit record
// first.
type service struct {
	taskapi.TTRPCTaskService
	ws *watchers
}

// RegisterTTRPC implements shim.TTRPCService.
func (s *service) RegisterTTRPC(srv *ttrpc.Server) error {
	taskapi.RegisterTTRPCTaskService(srv, s)
	return nil
}

// Create implements the task service.
func (s *service) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	w := newWatcher(r.Bundle)
	if err := w.hold(r.Stdout, r.Stderr); err != nil {
		return nil, err
	}
	// Added before the container exists: its process may exit before Create returns.
	s.ws.add(r.ID, w)
	resp, err := s.createRevealed(ctx, r, w)
	if err != nil {
		s.ws.remove(r.ID)
		return nil, err
	}
	w.started(int(resp.Pid))
	return resp, nil
}

// createRevealed creates the container with the values that its stored spec omits.
func (s *service) createRevealed(ctx context.Context, r *taskapi.CreateTaskRequest, w *watcher) (*taskapi.CreateTaskResponse, error) {
	conceal, err := reveal(w.bundle, w.hidden)
	if err != nil {
		return nil, err
	}
	resp, err := s.TTRPCTaskService.Create(ctx, r)
	if cerr := conceal(); cerr != nil {
		log.G(ctx).WithError(cerr).WithField("id", r.ID).Warn("conceal process")
	}
	return resp, err
}

// startGrace is how long a start continues after its caller is gone.
const startGrace = 10 * time.Second

// Start implements the task service. Unlike in containerd, runc is not killed when the connection closes because containerd was killed. If
// runc dies after it has opened the container's start FIFO and before it has removed it, the container runs, but the next runc takes it for
// one that was not started, and starting it never returns.
func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	if r.ExecID == "" {
		var cancel context.CancelFunc
		ctx, cancel = outlive(ctx, startGrace)
		defer cancel()
	}
	return s.TTRPCTaskService.Start(ctx, r)
}

// outlive returns a context that ends some time after ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(grace, cancel)
		context.AfterFunc(longer, func() { t.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

// Exec implements the task service.
func (s *service) Exec(ctx context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	if w := s.ws.get(r.ID); w != nil && w.hidden != "" {
		spec, err := revealExec(r.Spec, w.hidden)
		if err != nil {
			return nil, err
		}
		r.Spec = spec
	}
	return s.TTRPCTaskService.Exec(ctx, r)
}

// State implements the task service.
func (s *service) State(ctx context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	resp, err := s.TTRPCTaskService.State(ctx, r)
	if err == nil && r.ExecID == "" && resp.Status == tasktypes.Status_STOPPED {
		s.record(ctx, r.ID, resp.ExitStatus, resp.ExitedAt)
	}
	return resp, err
}

// Wait implements the task service.
func (s *service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	resp, err := s.TTRPCTaskService.Wait(ctx, r)
	if err == nil && r.ExecID == "" {
		s.record(ctx, r.ID, resp.ExitStatus, resp.ExitedAt)
	}
	return resp, err
}

// Delete implements the task service. It writes the record before the cgroup with its OOM counter is removed, and closes the FIFOs last, so
// that readers see EOF only after everything has been written.
func (s *service) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	if r.ExecID != "" {
		return s.TTRPCTaskService.Delete(ctx, r)
	}
	_, _ = s.State(ctx, &taskapi.StateRequest{ID: r.ID}) // which records; an error comes again from Delete
	resp, err := s.TTRPCTaskService.Delete(ctx, r)
	if err != nil {
		return resp, err
	}
	if w := s.ws.get(r.ID); w != nil {
		// containerd searches the mount table if this directory exists. Nothing is mounted there any longer, and it is empty.
		_ = os.Remove(filepath.Join(w.bundle, "rootfs"))
		if err := markDeleted(w.bundle, resp); err != nil {
			log.G(ctx).WithError(err).WithField("id", r.ID).Warn("mark as deleted")
		}
	}
	s.ws.remove(r.ID)
	return resp, nil
}

// markDeleted records that a container was deleted, with the answer of the shim's delete command.
func markDeleted(bundle string, resp *taskapi.DeleteResponse) error {
	answer, err := proto.Marshal(&taskapi.DeleteResponse{Pid: resp.Pid, ExitStatus: resp.ExitStatus, ExitedAt: resp.ExitedAt})
	if err != nil {
		return err
	}
	return deleted.Write(bundle, answer)
}

// Pids implements the task service. Unlike containerd's implementation, it does not call the OCI runtime (one exec per container when
// containerd starts), and it includes the init process even after its exit: on startup, containerd kills shims without pids, and with them
// the exit code and the output in the FIFOs would be lost.
func (s *service) Pids(ctx context.Context, r *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	w := s.ws.get(r.ID)
	if w == nil || w.initPid() == 0 {
		return s.TTRPCTaskService.Pids(ctx, r)
	}
	resp := &taskapi.PidsResponse{}
	for _, pid := range w.pids() {
		resp.Processes = append(resp.Processes, &tasktypes.ProcessInfo{Pid: uint32(pid)})
	}
	return resp, nil
}

// record writes the exit record of a container, once. Errors are only logged: an exit must not be held up in the shim.
func (s *service) record(ctx context.Context, id string, status uint32, at *timestamppb.Timestamp) {
	s.ws.exited(ctx, id, status, at.AsTime())
}

// publisher writes exit records before it publishes exit events.
type publisher struct {
	shim.Publisher
	ws *watchers
}

// Publish implements events.Publisher.
func (p *publisher) Publish(ctx context.Context, topic string, event events.Event) error {
	switch e := event.(type) {
	case *eventstypes.TaskExit:
		if e.ID == e.ContainerID {
			p.ws.exited(ctx, e.ContainerID, e.ExitStatus, e.ExitedAt.AsTime())
		}
	case *eventstypes.TaskOOM:
		if w := p.ws.get(e.ContainerID); w != nil {
			w.oom()
		}
	}
	return p.Publisher.Publish(ctx, topic, event)
}

// exited writes the exit record of a container, once.
func (ws *watchers) exited(ctx context.Context, id string, status uint32, at time.Time) {
	w := ws.get(id)
	if w == nil {
		return
	}
	if err := w.exited(int(status), at); err != nil {
		log.G(ctx).WithError(err).WithField("id", id).Error("exit record")
	}
}
