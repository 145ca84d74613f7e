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

// service is containerd's task service, with a watcher per container beside it. Every call that can tell the
// caller about an exit writes the exit record first.
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
	// Known before it exists: its process may end before Create returns.
	s.ws.add(r.ID, w)
	resp, err := s.createRevealed(ctx, r, w)
	if err != nil {
		s.ws.remove(r.ID)
		return nil, err
	}
	w.started(int(resp.Pid))
	return resp, nil
}

// createRevealed creates the container with what its stored spec lacks.
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

// startGrace is how long a start goes on when nobody waits for it any more.
const startGrace = 10 * time.Second

// Start implements the task service. When the connection to containerd closes, because that is killed, runc is not: one that is
// killed after it has opened the FIFO of a container, and before it has removed that, leaves a container that runs, that it takes for
// one that was not started, and whose next start never ends.
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

// Delete implements the task service. The record is written before the cgroup with its OOM counter goes,
// and the FIFOs are closed last, so that readers see the end only after everything has been written.
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
		// Where something may be mounted, containerd looks for that in the mount table. Nothing is any more: it is empty.
		_ = os.Remove(filepath.Join(w.bundle, "rootfs"))
		if err := markDeleted(w.bundle, resp); err != nil {
			log.G(ctx).WithError(err).WithField("id", r.ID).Warn("mark as deleted")
		}
	}
	s.ws.remove(r.ID)
	return resp, nil
}

// markDeleted notes that a container is deleted, and what its program is to answer when it is asked about it.
func markDeleted(bundle string, resp *taskapi.DeleteResponse) error {
	answer, err := proto.Marshal(&taskapi.DeleteResponse{Pid: resp.Pid, ExitStatus: resp.ExitStatus, ExitedAt: resp.ExitedAt})
	if err != nil {
		return err
	}
	return deleted.Write(bundle, answer)
}

// Pids implements the task service. Unlike containerd's it does not ask the OCI runtime (an exec for each
// container when containerd starts), and it names the init process even when that has ended: containerd
// kills shims without pids at its start, and with them the exit code and the output still in the FIFOs.
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

// record writes the exit record of a container, once. It only logs: an exit must not get stuck in the shim.
func (s *service) record(ctx context.Context, id string, status uint32, at *timestamppb.Timestamp) {
	s.ws.exited(ctx, id, status, at.AsTime())
}

// publisher writes exit records before it passes exit events on.
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
