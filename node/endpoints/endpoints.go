// Package endpoints serves what the HTTP server of a kubelet serves, by the same paths: health, pods, stats, metrics, configuration and
// profiles; and forwards streams.
//
// It must not authenticate or authorize, which is up to the listener, and decides nothing.
//
// Goroutines: none.
package endpoints

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/health"
	"monopod/node/localapi"
	"monopod/node/metrics"
	"monopod/node/stats"
)

// Usage reads what the machine and the pods use now.
type Usage interface {
	All(ctx context.Context, o stats.Options) (stats.Machine, []stats.Pod, error)
}

// Config of Endpoints.
type Config struct {
	Node   string
	Checks *health.Checks
	Stats  Usage
	// Metrics are what answers, by path.
	Metrics map[string]http.Handler
	Tally   *metrics.Tally
	// Pods returns all pods as users see them; Running those that have a container that runs, as the runtime knows them.
	Pods    func(ctx context.Context) ([]corev1.Pod, error)
	Running func(ctx context.Context) ([]corev1.Pod, error)
	// Configuration is the answer to /configz, without the object around it.
	Configuration json.RawMessage
	// RootDirectory and ImageDirectory are on the file systems that stats describe.
	RootDirectory, ImageDirectory string
	// Streams serves StreamPaths over TCP; the socket has its own handler. Nil: they are not served.
	Streams http.Handler
	// StreamPaths are the prefixes of exec, attach and similar paths, as in "/exec/".
	StreamPaths []string
	// NoDebugging: what can change or look into pods is not served over TCP.
	NoDebugging bool
	// Profiling: /debug/pprof/ is served.
	Profiling bool
	// Answered, which may be nil, is called after each request.
	Answered func()
	Log      *slog.Logger
}

// Endpoints answers requests.
type Endpoints struct {
	cfg     Config
	started time.Time
}

// New returns Endpoints. It does no I/O.
func New(cfg Config) *Endpoints { return &Endpoints{cfg: cfg, started: time.Now()} }

// open are the paths that need no rights to look into pods, by their patterns.
func (e *Endpoints) open(terse bool) map[string]http.Handler {
	routes := map[string]http.Handler{
		"/pods": get(e.pods), "/pods/": get(e.pods),
		"/stats/summary": http.HandlerFunc(e.summary),
	}
	for _, kind := range health.Kinds() {
		h := e.cfg.Checks.Handler(kind, terse)
		routes["/"+string(kind)], routes["/"+string(kind)+"/"] = h, h
	}
	for path, h := range e.cfg.Metrics {
		routes[path] = get(h.ServeHTTP)
	}
	return routes
}

// debugging are the paths that can look into pods and into the daemon.
func (e *Endpoints) debugging() map[string]http.Handler {
	routes := map[string]http.Handler{"/runningpods/": get(e.running), "/configz": get(e.configz)}
	if e.cfg.Profiling {
		routes["/debug/pprof/"] = http.HandlerFunc(pprof.Index)
		routes["/debug/pprof/cmdline"] = http.HandlerFunc(pprof.Cmdline)
		routes["/debug/pprof/profile"] = http.HandlerFunc(pprof.Profile)
		routes["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
		routes["/debug/pprof/trace"] = http.HandlerFunc(pprof.Trace)
	}
	return routes
}

// Routes returns all paths but those of Streams, for the socket; see OnSocket.
func (e *Endpoints) Routes() map[string]http.Handler {
	routes := e.open(false)
	maps.Copy(routes, e.debugging())
	return routes
}

// OnSocket counts the requests that the socket answers, by the paths of Routes and others.
func (e *Endpoints) OnSocket(h http.Handler) http.Handler { return e.counted("socket", h) }

// Handler serves all paths, for clients that may use all of them.
func (e *Endpoints) Handler() http.Handler {
	mux, debugging := muxOf(e.open(false)), e.debugging()
	if e.cfg.Streams != nil {
		for _, path := range e.cfg.StreamPaths {
			debugging[path] = e.cfg.Streams
		}
	}
	for pattern, h := range debugging {
		if e.cfg.NoDebugging {
			h = http.HandlerFunc(disabled)
		}
		mux.Handle(pattern, h)
	}
	return e.counted("readwrite", mux)
}

func disabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed)
}

// ReadOnly answers strangers: health, pods, metrics and stats.
func (e *Endpoints) ReadOnly() http.Handler {
	return e.counted("readonly", onlyGet(muxOf(e.open(true))))
}

// Healthz answers strangers, and of health alone.
func (e *Endpoints) Healthz() http.Handler {
	routes := map[string]http.Handler{}
	for _, kind := range health.Kinds() {
		h := e.cfg.Checks.Handler(kind, true)
		routes["/"+string(kind)], routes["/"+string(kind)+"/"] = h, h
	}
	return e.counted("healthz", onlyGet(muxOf(routes)))
}

func muxOf(routes map[string]http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	return mux
}

func onlyGet(h http.Handler) http.Handler { return get(h.ServeHTTP) }

func get(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	})
}

// LongRunning reports whether the duration of a request is not limited.
func (e *Endpoints) LongRunning(r *http.Request) bool {
	name := e.bucket(r.URL.Path)
	switch name {
	case "debug":
		return true
	case "pods/exec", "pods/attach", "pods/portforward":
		return true
	case "podreports", "pods/log", "agents/events", "agents/drain":
		q := r.URL.Query()
		return q.Has("watch") || q.Has("follow")
	}
	return e.isStream(name)
}

// isStream reports whether the first element of a path is that of a stream.
func (e *Endpoints) isStream(first string) bool {
	return slices.Contains(e.cfg.StreamPaths, "/"+first+"/")
}

// bucket returns the name under which requests for a path are counted. Clients cannot add names.
func (e *Endpoints) bucket(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "metrics":
		switch rest {
		case "cadvisor", "resource", "probes":
			return first + "/" + rest
		}
		return first
	case "stats", "pods", "runningpods", "configz", "healthz", "livez", "readyz", "debug":
		return first
	case "api":
		return podBucket(rest)
	case "apis":
		return ownBucket(strings.TrimPrefix(path, localapi.Base+"/"))
	}
	if e.isStream(first) {
		return first
	}
	return "other"
}

// podBucket is bucket for Kubernetes API paths that connect to pods.
func podBucket(rest string) string {
	words := strings.Split(rest, "/")
	if len(words) != 6 || words[1] != "namespaces" || words[3] != "pods" {
		return "other"
	}
	switch words[5] {
	case "attach", "exec", "log", "portforward":
		return "pods/" + words[5]
	}
	return "other"
}

// ownBucket is bucket for the paths below the API group of monopod.
func ownBucket(rest string) string {
	words := strings.Split(rest, "/")
	if words[0] == "namespaces" && len(words) > 2 {
		words = words[2:]
	}
	resource := words[0]
	switch {
	case resource != "podreports" && resource != "agents":
		return "other"
	case len(words) < 3:
		return resource
	}
	switch words[2] {
	case "applied", "config", "cordon", "costs", "documents", "drain", "events", "files", "history", "images", "kubeconfig", "pulls", "rollback", "sources", "why":
		return resource + "/" + words[2]
	}
	return "other"
}

// method returns the name under which requests of a method are counted.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions:
		return m
	}
	return "other"
}

func (e *Endpoints) counted(server string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		end := e.cfg.Tally.Begin(metrics.Request{Server: server, Method: method(r.Method), Path: e.bucket(r.URL.Path), LongRunning: e.LongRunning(r)})
		defer func() {
			end(time.Since(began))
			if e.cfg.Answered != nil {
				e.cfg.Answered()
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func (e *Endpoints) pods(w http.ResponseWriter, r *http.Request) { e.list(w, r, e.cfg.Pods) }

func (e *Endpoints) running(w http.ResponseWriter, r *http.Request) { e.list(w, r, e.cfg.Running) }

func (e *Endpoints) list(w http.ResponseWriter, r *http.Request, list func(context.Context) ([]corev1.Pod, error)) {
	pods, err := list(r.Context())
	if err != nil && len(pods) == 0 {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if pods == nil {
		pods = []corev1.Pod{}
	}
	e.json(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods})
}

// configz has the configuration by the name that readers of a kubelet's look for; the keys are the same where a kubelet
// has the setting.
func (e *Endpoints) configz(w http.ResponseWriter, _ *http.Request) {
	e.json(w, map[string]json.RawMessage{"kubeletconfig": e.cfg.Configuration})
}

func (e *Endpoints) json(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(b); err != nil {
		e.cfg.Log.Debug("answer a request", "err", err)
	}
}
