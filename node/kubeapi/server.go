package kubeapi

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/discovery"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/monopodv1"
	"monopod/node/kubeapi/openapi"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/revlog"
	"monopod/node/kubeapi/streams"
	"monopod/node/kubeapi/tokens"
	"monopod/node/kubeapi/writes"
)

// readTimeout is the deadline for a client to read a response that is not a stream.
const readTimeout = time.Minute

// Config of a Server.
type Config struct {
	State State
	// Writer stores what clients write; nil: the API is read-only.
	Writer Writer
	// Policy authorizes requests. The user of a request is in its context: see access.WithUser.
	Policy access.Policy
	// ImmutablePods refuses the updates of pods that Kubernetes forbids; otherwise they are stored.
	ImmutablePods bool
	// Tokens verifies tokens for TokenReview; with nil, all tokens are unknown.
	Tokens access.TokenAuthenticator
	// Issuer signs service account tokens; nil disables them.
	Issuer Issuer
	// Served selects the kinds to serve.
	Served kinds.Served
	// URL is the URL of the listener for clients on this machine; empty if there is no listener.
	URL string
	// Epoch increases with every start of the program.
	Epoch uint32
	// Node is the name of the node.
	Node string
	// Version is the version of monopod.
	Version string
	// Streams serves log, exec, attach and portforward of pods; nil disables them.
	Streams *streams.Handler
	// Pod returns the pod to connect to, or nil if there is none. If the field is nil, pods come from State.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Watches counts watches; nil counts those of this Server only.
	Watches *Watches
	Log     *slog.Logger
	// Now is the clock for creation and deletion timestamps; nil means time.Now.
	Now func() time.Time
}

// Server serves the API. Create it with New.
type Server struct {
	cfg     Config
	log     *revlog.Log
	apart   onDemandLogs
	watches *Watches
	writes  *writes.Handler
	bodies  bodies
	// discovery and schemas describe the served kinds.
	discovery *discovery.Handler
	schemas   *openapi.Handler
}

// New returns a server. It does nothing until it gets a request.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Watches == nil {
		cfg.Watches = NewWatches()
	}
	s := &Server{cfg: cfg, log: revlog.New(cfg.Epoch, cfg.State), apart: onDemandLogs{state: cfg.State, epoch: cfg.Epoch}, watches: cfg.Watches}
	s.discovery, s.schemas = discovery.New(cfg.Served), openapi.New(cfg.Served)
	s.writes = writes.New(writes.Config{
		State: cfg.State, Writer: cfg.Writer, Policy: cfg.Policy, Revisions: s.log, Hidden: s.hidden, Served: cfg.Served, ImmutablePods: cfg.ImmutablePods, Node: cfg.Node, Now: cfg.Now,
	})
	return s
}

// Serves reports whether a path belongs to the API.
func (s *Server) Serves(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "api", "apis", "openapi", "version", "healthz", "livez", "readyz":
		return true
	}
	return path == tokens.ConfigurationPath || path == tokens.KeySetPath
}

// Handler serves the requests of users, whom the listener has put into their contexts.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		defer s.recovered(answer, r)
		s.serve(answer, r)
	})
}

// recovered responds with 500 after a panic, so that other requests are still served. A response that has begun is aborted: it must not
// look complete.
func (s *Server) recovered(w *answer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this, too
		panic(cause)
	}
	s.cfg.Log.Error("A request of the Kubernetes API panicked", "method", r.Method, "path", r.URL.Path, "panic", cause, "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	s.fail(w, r, apierrors.NewInternalError(errors.New("internal error; see the monopod log")))
}

func (s *Server) serve(w *answer, r *http.Request) {
	req, err := request.Parse(r, s.cfg.Served)
	if err == nil {
		err = s.authorize(r, req)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	switch {
	case req.Kind == nil:
		s.path(w, r)
	case direct(req):
		resource := req.Kind.Resource().GroupResource()
		resource.Resource += "/" + req.Subresource
		s.fail(w, r, apierrors.NewMethodNotSupported(resource, req.Verb))
	case req.Kind.Virtual:
		s.buffered(w, r, func(r *http.Request) { s.review(w, r, req) })
	case req.Subresource == "token":
		s.buffered(w, r, func(r *http.Request) { s.token(w, r, req) })
	case connects(req):
		s.connect(w, r, req)
	case req.Verb == "get" && whole(req):
		limit(w, r)
		s.get(w, r, req)
	case req.Verb == "list":
		limit(w, r)
		s.list(w, r, req)
	case req.Verb == "watch":
		s.watch(w, r, req)
	default:
		s.buffered(w, r, func(r *http.Request) { s.writes.Serve(w, r, req) })
	}
}

// direct reports whether a request belongs to a path that the daemon itself serves, before this API, if available.
func direct(req *request.Request) bool {
	return req.Kind.Group == monopodv1.SchemeGroupVersion.Group && (req.Subresource != "" || req.Kind.Kind == "PodReport")
}

// limit sets the write deadline. The listener limits everything except streams, and a query can make any request look like a stream. The
// listener sets a new deadline for the next request of the connection; the socket, which has no TLS, does not, and is only for root.
func limit(w http.ResponseWriter, r *http.Request) {
	if r.TLS != nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTimeout))
	}
}

// whole reports whether a request names the object itself, or a subresource with the same representation, such as status.
func whole(req *request.Request) bool {
	sub := req.Kind.Subresource(req.Subresource)
	return sub == nil || sub.Kind == req.Kind.GroupVersionKind
}

// connects reports whether a request names a subresource that clients connect to rather than read or write.
func connects(req *request.Request) bool {
	switch req.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}

// fail writes an error as a Status.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) { codec.Fail(w, r, err) }

// answer records whether a response has begun, and can delay flushes while more data follows immediately.
type answer struct {
	http.ResponseWriter
	begun, hold bool
}

func (a *answer) WriteHeader(code int) {
	a.begun = a.begun || code >= http.StatusOK
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is called by http.ResponseController.
func (a *answer) FlushError() error {
	a.begun = true
	if a.hold {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// Unwrap lets http.ResponseController set deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
