// Package streams serves the subresources that connect to a pod: log, exec, attach, portforward and proxy.
//
// It maps the paths of the Kubernetes API to those of the kubelet, which node/stream serves, and is a proxy for the HTTP servers in pods.
// It must not authorize: its caller passes only authorized requests. It must connect only to ports of pods on this machine, and must not
// forward client credentials to them.
//
// Goroutines: per request; they end with it.
package streams

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/manifests"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/request"
)

// Config of a Handler.
type Config struct {
	// Streams serves the paths of the kubelet: /exec, /attach, /portForward and /containerLogs. It looks up pods by itself.
	Streams http.Handler
	// Dial connects to a TCP port of a pod, like the Runtime of node/stream; nil disables the proxy.
	Dial func(ctx context.Context, pod manifests.Key, port int) (net.Conn, error)
	// Node serves the kubelet paths for nodes/proxy; nil disables them.
	Node http.Handler
	// IdleTimeout closes idle proxied connections and idle logs over WebSocket; 0 means four hours.
	IdleTimeout time.Duration
	// HeaderTimeout is the time within which a proxied server must begin its response; 0 means one minute.
	HeaderTimeout time.Duration
	Log           *slog.Logger
}

// Defaults of a Config.
const (
	defaultIdleTimeout   = 4 * time.Hour
	defaultHeaderTimeout = time.Minute
	dialTimeout          = 30 * time.Second
)

// Handler serves streams. Create it with New.
type Handler struct {
	cfg Config
	// silence is how long a log over WebSocket may be quiet before the client gets an empty message that confirms the connection.
	silence time.Duration
}

// New returns a Handler. It does no I/O.
func New(cfg Config) *Handler {
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, defaultIdleTimeout)
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, defaultHeaderTimeout)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Handler{cfg: cfg, silence: time.Second}
}

// Serve serves the subresources log, exec, attach and portforward of a pod.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, req *request.Request, pod *corev1.Pod) {
	serve := map[string]func(http.ResponseWriter, *http.Request, *corev1.Pod) error{
		"log": h.log, "exec": h.exec, "attach": h.attach, "portforward": h.portForward,
	}[req.Subresource]
	if serve == nil {
		codec.Fail(w, r, apierrors.NewMethodNotSupported(req.Kind.Resource().GroupResource(), req.Verb))
		return
	}
	if err := serve(w, r, pod); err != nil {
		codec.Fail(w, r, err)
	}
}

func (h *Handler) exec(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	return h.remote(w, r, pod, "exec")
}

func (h *Handler) attach(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	return h.remote(w, r, pod, "attach")
}

// remote serves exec and attach.
func (h *Handler) remote(w http.ResponseWriter, r *http.Request, pod *corev1.Pod, what string) error {
	q := r.URL.Query()
	container, err := containerOf(pod, q.Get("container"))
	if err != nil {
		return err
	}
	to := url.Values{}
	for name, kubelet := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if boolean(q, name) {
			to.Set(kubelet, "1")
		}
	}
	if what == "exec" {
		to["command"] = q["command"]
	}
	h.forward(w, r, "/"+what+"/"+pod.Namespace+"/"+pod.Name+"/"+container, to)
	return nil
}

// portForward connects to ports. Ports in the query are for WebSockets that do not tunnel SPDY: other clients name ports later.
func (h *Handler) portForward(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	to := url.Values{}
	if ports := r.URL.Query()["ports"]; len(ports) > 0 {
		to.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	h.forward(w, r, "/portForward/"+pod.Namespace+"/"+pod.Name, to)
	return nil
}

// forward lets the kubelet's handler serve a request. Its errors, which are plain text, become a Status.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, path string, q url.Values) {
	a := &answer{ResponseWriter: w}
	h.cfg.Streams.ServeHTTP(a, kubelet(r, path, q))
	if err := a.err(); err != nil {
		codec.Fail(w, r, err)
	}
}

// kubelet returns a request for a path of the kubelet, without the credentials of the client.
func kubelet(r *http.Request, path string, q url.Values) *http.Request {
	to := r.Clone(r.Context())
	to.URL = &url.URL{Path: path, RawQuery: q.Encode()}
	to.RequestURI = to.URL.RequestURI()
	anonymize(to.Header)
	return to
}
