package node

import (
	"context"
	"net/http"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"monopod/node/localapi"
)

// Scheduler decides whether pods may run on this machine.
type Scheduler interface {
	Schedule() localapi.Schedule
	// Cordon stops starting new pods, Drain also stops the existing ones, Undrain reverts both. They return once the change is stored; pods
	// stop and start afterwards.
	Cordon(localapi.DrainRequest) (localapi.Schedule, error)
	Drain(localapi.DrainRequest) (localapi.Schedule, error)
	Undrain() (localapi.Schedule, error)
}

// scheduleRoutes adds what keeps pods from running.
func (s *Server) scheduleRoutes(mux *http.ServeMux) {
	if s.cfg.Scheduler == nil {
		return
	}
	mux.HandleFunc("GET "+localapi.Self("drain"), s.schedule)
	mux.HandleFunc("PUT "+localapi.Self("cordon"), func(w http.ResponseWriter, r *http.Request) {
		serveChange(s, w, r, func(_ context.Context, q localapi.DrainRequest) (localapi.Schedule, error) {
			return s.cfg.Scheduler.Cordon(q)
		})
	})
	mux.HandleFunc("PUT "+localapi.Self("drain"), func(w http.ResponseWriter, r *http.Request) {
		serveChange(s, w, r, func(_ context.Context, q localapi.DrainRequest) (localapi.Schedule, error) {
			return s.cfg.Scheduler.Drain(q)
		})
	})
	mux.HandleFunc("DELETE "+localapi.Self("drain"), func(w http.ResponseWriter, r *http.Request) {
		serveChange(s, w, r, func(context.Context, struct{}) (localapi.Schedule, error) { return s.cfg.Scheduler.Undrain() })
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
	var last *localapi.Schedule
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
	localapi.Schedule
}
