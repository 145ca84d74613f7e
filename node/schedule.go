package node

import (
	"context"
	"net/http"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Schedule says whether pods may run on this machine, and what has become of those that may not.
type Schedule struct {
	// Cordoned says that pods that are not there are not started.
	Cordoned bool `json:"cordoned"`
	// Drained says that pods are stopped, too.
	Drained bool `json:"drained"`
	// PriorityBelow and Ignore are what the drain spares; see DrainRequest.
	PriorityBelow *int32   `json:"priorityBelow,omitempty"`
	Ignore        []string `json:"ignore,omitempty"`
	// UntilBoot says that all of this is over when the machine starts again.
	UntilBoot bool `json:"untilBoot,omitempty"`
	// Since is when it was asked for.
	Since time.Time `json:"since,omitzero"`
	// ShuttingDown says that the machine goes down.
	ShuttingDown bool `json:"shuttingDown"`
	// Unseen is why it is not known which pods run; empty: it is.
	Unseen string `json:"unseen,omitempty"`
	// Stopping are the pods that are to stop and have not yet, as NAMESPACE/NAME.
	Stopping []string `json:"stopping,omitempty"`
}

// DrainRequest is the body of PUT /v1/drain and PUT /v1/cordon.
type DrainRequest struct {
	// PriorityBelow spares pods of that priority and above.
	PriorityBelow *int32 `json:"priorityBelow,omitempty"`
	// Ignore spares pods by patterns of their names.
	Ignore []string `json:"ignore,omitempty"`
	// UntilBoot ends it when the machine starts again.
	UntilBoot bool `json:"untilBoot,omitempty"`
}

// Scheduler decides whether pods may run on this machine.
type Scheduler interface {
	Schedule() Schedule
	// Cordon keeps new pods out, Drain stops those that are there as well, Undrain takes both back. They return when it
	// is on the disk; pods stop, and start, afterwards.
	Cordon(DrainRequest) (Schedule, error)
	Drain(DrainRequest) (Schedule, error)
	Undrain() (Schedule, error)
}

// scheduleRoutes adds what keeps pods from running.
func (s *Server) scheduleRoutes(mux *http.ServeMux) {
	if s.cfg.Scheduler == nil {
		return
	}
	mux.HandleFunc("GET /v1/drain", s.schedule)
	mux.HandleFunc("PUT /v1/cordon", func(w http.ResponseWriter, r *http.Request) {
		serveChange(s, w, r, func(_ context.Context, q DrainRequest) (Schedule, error) { return s.cfg.Scheduler.Cordon(q) })
	})
	mux.HandleFunc("PUT /v1/drain", func(w http.ResponseWriter, r *http.Request) {
		serveChange(s, w, r, func(_ context.Context, q DrainRequest) (Schedule, error) { return s.cfg.Scheduler.Drain(q) })
	})
	mux.HandleFunc("DELETE /v1/drain", func(w http.ResponseWriter, r *http.Request) {
		serveChange(s, w, r, func(context.Context, struct{}) (Schedule, error) { return s.cfg.Scheduler.Undrain() })
	})
}

// schedule answers once, or with each change.
func (s *Server) schedule(w http.ResponseWriter, r *http.Request) {
	if q := r.URL.Query().Get("watch"); q != "true" && q != "1" {
		s.json(w, s.cfg.Scheduler.Schedule())
		return
	}
	changed, cancel := s.cfg.Pods.Subscribe()
	defer cancel()
	var last *Schedule
	stream(w, r, changed, func() []metav1.WatchEvent {
		now := s.cfg.Scheduler.Schedule()
		if last != nil && reflect.DeepEqual(*last, now) {
			return nil
		}
		last = &now
		return []metav1.WatchEvent{{Type: string(apiwatch.Modified), Object: runtime.RawExtension{Object: watched{Schedule: now}}}}
	})
}

// watched makes a Schedule what a stream takes.
type watched struct {
	runtime.Object `json:"-"`
	Schedule
}

// ScheduleEvent is one event of WatchSchedule.
type ScheduleEvent struct {
	Object Schedule `json:"object"`
}

// Schedule says whether pods may run.
func (c *Client) Schedule(ctx context.Context) (Schedule, error) {
	var s Schedule
	return s, c.getJSON(ctx, "/v1/drain", &s)
}

// WatchSchedule calls each with the Schedule of now and with each other one, until ctx ends or each returns an error.
func (c *Client) WatchSchedule(ctx context.Context, each func(Schedule) error) error {
	return follow(ctx, c, "/v1/drain?watch=true", func(e ScheduleEvent) error { return each(e.Object) })
}

// Cordon is that of Scheduler.
func (c *Client) Cordon(ctx context.Context, r DrainRequest) (Schedule, error) {
	return c.reschedule(ctx, http.MethodPut, "/v1/cordon", r)
}

// Drain is that of Scheduler.
func (c *Client) Drain(ctx context.Context, r DrainRequest) (Schedule, error) {
	return c.reschedule(ctx, http.MethodPut, "/v1/drain", r)
}

// Undrain is that of Scheduler.
func (c *Client) Undrain(ctx context.Context) (Schedule, error) {
	return c.reschedule(ctx, http.MethodDelete, "/v1/drain", struct{}{})
}

func (c *Client) reschedule(ctx context.Context, method, path string, request any) (s Schedule, err error) {
	return s, c.send(ctx, method, path, request, &s)
}
