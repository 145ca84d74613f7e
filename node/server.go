package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/localapi"
	podstream "monopod/node/stream"
)

// shutdownGrace is how long requests in progress may take when the server stops. Watches and followed logs
// end at once.
const shutdownGrace = time.Second

// startPatience is how long a request waits for a daemon that has just been started.
const startPatience = 10 * time.Second

// Config of a Server.
type Config struct {
	Pods Pods
	// Leaving returns pods to list besides those of Pods: removed ones with leftovers. Watches do not have them. nil: there are none.
	Leaving func(there []PodView) []PodView
	Logs    Logs
	Inputs  Inputs
	Events  Events
	// Revisions may be nil: answers have no revisions then.
	Revisions Revisions
	// Applier, which may be nil, takes documents from clients.
	Applier Applier
	Whys    Whys
	// Objects, which may be nil, returns the objects besides pods, as clients see them.
	Objects func() []metav1.Object
	// Agent, which may be nil, returns what the daemon costs.
	Agent func() localapi.Agent
	// Scheduler may be nil: pods may always run then.
	Scheduler Scheduler
	// Reach, which may be nil, reaches into pods; StreamIdleTimeout ends such connections when nothing moves.
	Reach             podstream.Runtime
	StreamIdleTimeout time.Duration
	// Alias, which may be nil, returns the name of the pod that others know by a name that no pod has.
	Alias func(name string) (string, bool)
	// Files, which may be nil, reads and writes those of containers.
	Files Files
	// Routes are further paths, by their patterns in a ServeMux.
	Routes map[string]http.Handler
	// Around, which may be nil, wraps the whole handler, to count requests.
	Around func(http.Handler) http.Handler
	// Images may be nil: there are no paths for images then.
	Images Images
	// Settings is the answer to GET /v1/config.
	Settings json.RawMessage
	// Version is the answer to GET /v1/version.
	Version string
	Log     *slog.Logger
}

// Server serves the API.
type Server struct {
	responder
	podReader
	cfg Config
	// streams is nil when nothing reaches into pods.
	streams *podstream.Handler
	// grace is shutdownGrace, but for tests.
	grace time.Duration
	turns turns
}

// NewServer returns a Server. It does no I/O.
func NewServer(cfg Config) *Server {
	s := &Server{responder: responder{cfg.Log}, podReader: podReader{pods: cfg.Pods, leaving: cfg.Leaving, alias: cfg.Alias}, cfg: cfg, grace: shutdownGrace, turns: newTurns()}
	if cfg.Reach != nil {
		s.streams = podstream.New(podstream.Config{Pods: &s.podReader, Runtime: cfg.Reach, Logs: s.containerLogs, IdleTimeout: cfg.StreamIdleTimeout, Log: cfg.Log})
	}
	return s
}

// Handler returns the routes of the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pods", s.listPods)
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}", s.pod)
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/log", s.log)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET /v1/sources", func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Inputs.Inputs()) })
	mux.HandleFunc("GET /v1/why", s.why)
	mux.HandleFunc("GET /v1/why/{namespace}/{name}", s.why)
	mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Settings) })
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) { s.json(w, map[string]string{"version": s.cfg.Version}) })
	for pattern, h := range s.cfg.Routes {
		mux.Handle(pattern, h)
	}
	s.objectRoutes(mux)
	s.applyRoutes(mux)
	s.revisionRoutes(mux)
	s.scheduleRoutes(mux)
	s.agentRoutes(mux)
	s.imageRoutes(mux)
	s.streamRoutes(mux)
	s.fileRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			s.fail(w, statusError(http.StatusMethodNotAllowed, "the API has no "+r.Method+" for "+r.URL.Path))
			return
		}
		s.fail(w, statusError(http.StatusNotFound, "no such path: "+r.URL.Path))
	})
	if s.cfg.Around == nil {
		return s.guarded(mux)
	}
	return s.cfg.Around(s.guarded(mux))
}

// Run serves on the listener until ctx ends, and closes it.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := srv.Shutdown(bounded); err != nil {
		_ = srv.Close() // what is left is cut off
	}
	if s.streams != nil {
		s.streams.Wait(bounded)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) listPods(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := podFilter{namespace: q.Get("namespace"), name: q.Get("name")}
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		s.watch(w, r, f, q.Get("sendInitialEvents") == "true")
		return
	}
	items, ok := s.found(w, r, f)
	if ok {
		s.json(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: items})
	}
}

// found returns the selected pods. While not all pods can be known it adds a warning and, rather than to say
// that there are none, answers with an error, and false.
func (s *Server) found(w http.ResponseWriter, r *http.Request, f podFilter) ([]corev1.Pod, bool) {
	views, err := s.views(r.Context())
	items := selectPods(views, f)
	switch {
	case err != nil && len(items) == 0:
		s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
		return nil, false
	case err != nil:
		w.Header().Set("Warning", "299 monopod "+strconv.Quote(err.Error()))
	}
	return items, true
}

func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	f := podFilter{namespace: r.PathValue("namespace"), name: r.PathValue("name")}
	switch found, ok := s.found(w, r, f); {
	case !ok:
	case len(found) == 0:
		s.fail(w, apierrors.NewNotFound(pods(), f.name))
	default:
		s.json(w, found[0])
	}
}
