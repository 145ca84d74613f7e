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
	"k8s.io/apimachinery/pkg/fields"

	"monopod/node/intake"
	"monopod/node/kubeapi/kinds"
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
	// AdmitRollback returns why the user of a request may not roll back to a pod; nil allows all.
	AdmitRollback func(ctx context.Context, pod *corev1.Pod) error
	// Applier, which may be nil, takes documents from clients.
	Applier Applier
	Whys    Whys
	// Objects, which may be nil, returns the objects besides pods, as clients see them.
	Objects func() []metav1.Object
	// Shown returns the objects that the Kubernetes API shows, and why it cannot show those of some kinds. It is set if Objects is.
	Shown func(context.Context) (map[*kinds.Kind][]kinds.Object, map[*kinds.Kind]error)
	// Visible reports whether the user of a request may see an object of Objects; nil shows all.
	Visible func(r *http.Request, o metav1.Object) bool
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
	// Shared, which may be nil, wraps the paths of monopod.dev: it authorizes requests, and serves all other paths of the API.
	Shared func(own *http.ServeMux) http.Handler
	// Settings is the configuration with its origins.
	Settings json.RawMessage
	// Version is the version of monopod.
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
	grace   time.Duration
	intake  *intake.Intake
	handler http.Handler
}

// NewServer returns a Server. It does no I/O. It calls Config.Shared, so that other servers can serve the shared paths before Run is called.
func NewServer(cfg Config) *Server {
	s := &Server{responder: responder{cfg.Log}, podReader: podReader{pods: cfg.Pods, leaving: cfg.Leaving, alias: cfg.Alias}, cfg: cfg, grace: shutdownGrace, intake: intake.New()}
	if cfg.Reach != nil {
		s.streams = podstream.New(podstream.Config{Pods: &s.podReader, Runtime: cfg.Reach, Logs: s.containerLogs, IdleTimeout: cfg.StreamIdleTimeout, Log: cfg.Log})
	}
	s.handler = s.routes()
	return s
}

// podPattern is the path pattern of a pod.
const podPattern = localapi.Base + "/namespaces/{namespace}/podreports/{name}"

// own returns the handlers of monopod.dev, which the API on TCP also serves. It does not authorize requests.
func (s *Server) own() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+localapi.PodReports(""), s.listPods)
	mux.HandleFunc("GET "+localapi.Base+"/namespaces/{namespace}/podreports", s.listPods)
	mux.HandleFunc("GET "+podPattern, s.pod)
	mux.HandleFunc("GET "+podPattern+"/why", s.why)
	mux.HandleFunc("GET "+localapi.Self("why"), s.why)
	mux.HandleFunc("GET "+localapi.Self("events"), s.events)
	mux.HandleFunc("GET "+localapi.Self("sources"), func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Inputs.Inputs()) })
	mux.HandleFunc("GET "+localapi.Self("config"), func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Settings) })
	s.objectRoutes(mux)
	s.applyRoutes(mux)
	s.revisionRoutes(mux)
	s.scheduleRoutes(mux)
	s.agentRoutes(mux)
	s.imageRoutes(mux)
	s.fileRoutes(mux)
	return mux
}

// Handler returns the handler of the socket.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range s.cfg.Routes {
		mux.Handle(pattern, h)
	}
	if own := s.own(); s.cfg.Shared != nil {
		mux.Handle(localapi.Base+"/", s.cfg.Shared(own))
	} else {
		mux.Handle(localapi.Base+"/", orElse(own, s.missing))
	}
	s.streamRoutes(mux)
	mux.HandleFunc("/v1/", s.former(s.cfg.Version))
	mux.HandleFunc("/", s.missing)
	if s.cfg.Around == nil {
		return s.guarded(mux)
	}
	return s.cfg.Around(s.guarded(mux))
}

// missing writes the response for unknown paths.
func (r responder) missing(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet {
		r.fail(w, statusError(http.StatusMethodNotAllowed, "the API has no "+req.Method+" for "+req.URL.Path))
		return
	}
	r.fail(w, statusError(http.StatusNotFound, "no such path: "+req.URL.Path))
}

// orElse serves the patterns of a mux, and everything else with another handler.
func orElse(mux *http.ServeMux, other http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			other(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// former responds to commands of releases that used the paths /v1.
func (r responder) former(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		r.fail(w, statusError(http.StatusNotFound, "this command is older than the running monopod, "+version+", and cannot talk to it; use the same release of both"))
	}
}

// Run serves on the listener until ctx ends, and closes it.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler,
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
	f := podFilter{namespace: r.PathValue("namespace")}
	fieldSelector, err := fields.ParseSelector(q.Get("fieldSelector"))
	if err == nil && !fieldSelector.Empty() {
		f.name, _ = fieldSelector.RequiresExactMatch("metadata.name")
		if len(fieldSelector.Requirements()) != 1 || f.name == "" {
			err = errors.New("podreports are selected by metadata.name=NAME only")
		}
	}
	if err != nil {
		s.fail(w, statusError(http.StatusBadRequest, err.Error()))
		return
	}
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		s.watch(w, r, f, q.Get("sendInitialEvents") == "true")
		return
	}
	items, ok := s.found(w, r, f)
	if ok {
		s.json(w, corev1.PodList{TypeMeta: reportType("PodReportList"), Items: items})
	}
}

// found returns the selected pods. While not all pods can be known it adds a warning and, rather than to say
// that there are none, answers with an error, and false.
func (s *Server) found(w http.ResponseWriter, r *http.Request, f podFilter) ([]corev1.Pod, bool) {
	views, err := s.views(r.Context())
	items := reports(views, f)
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

// reports returns the selected pods as reports: what `monopod get pods` shows, which is more than a Kubernetes Pod has.
func reports(views []PodView, f podFilter) []corev1.Pod {
	items := selectPods(views, f)
	for i := range items {
		items[i].TypeMeta = reportType("PodReport")
	}
	return items
}

func reportType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: localapi.Group + "/v1alpha1", Kind: kind}
}
