// Package stream connects clients to processes and ports of pods: it serves the kubelet's paths for that, /exec, /attach, /portForward,
// /run and /containerLogs, over SPDY and WebSocket, and has the client for the command line, which asks for the same at the paths
// of the Kubernetes API.
//
// It owns the connections once they are upgraded. It must not know how containers are run, nor authorize: the caller that mounts a Handler
// must let only requests through that may do what root may.
//
// Goroutines: those of a connection end with it, and a connection ends with its client, with its process or port, after an idle timeout, or
// with the context of its request, for which the server that mounts a Handler should have a BaseContext. Wait waits for all of them. Data
// in transit is limited to the buffers of a connection: a slow reader slows down the writer.
package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/streams"
	"monopod/manifests"
)

// Pods knows the pods.
type Pods interface {
	// FindPod returns a pod with its status, nil when there is none.
	FindPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// Runtime reaches into pods. Containers are named by the ids in the status of their pod.
type Runtime interface {
	// Stream runs a command until it ends, and returns its exit code.
	Stream(ctx context.Context, key manifests.Key, id string, command []string, s streams.Streams) (code int, err error)
	// Attach connects to the process of a container until it ends or the client leaves.
	Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error
	// Dial connects to a TCP port of a pod's loopback device. The connection should have CloseWrite.
	Dial(ctx context.Context, key manifests.Key, port int) (net.Conn, error)
}

// Config of a Handler.
type Config struct {
	Pods    Pods
	Runtime Runtime
	// Logs serves /containerLogs/{namespace}/{name}/{container}.
	Logs http.HandlerFunc
	// IdleTimeout ends connections on which nothing moves; 0: four hours, as in the kubelet.
	IdleTimeout time.Duration
	// CreationTimeout is what a client gets to open the streams it has announced; 0: 30 seconds.
	CreationTimeout time.Duration
	Log             *slog.Logger
}

// Defaults of a Config, those of the kubelet.
const (
	DefaultIdleTimeout     = 4 * time.Hour
	defaultCreationTimeout = 30 * time.Second
)

// lastWord is how long the client gets to hear how it ended before its connection is closed.
const lastWord = 2 * time.Second

// Handler serves streams. Make it with New.
type Handler struct {
	cfg Config
	mux *http.ServeMux

	mu     sync.Mutex // guards closed
	closed bool
	wg     sync.WaitGroup
}

// New returns a Handler. It does no I/O.
func New(cfg Config) *Handler {
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, DefaultIdleTimeout)
	cfg.CreationTimeout = cmp.Or(cfg.CreationTimeout, defaultCreationTimeout)
	h := &Handler{cfg: cfg, mux: http.NewServeMux()}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, uid := range []string{"", "/{uid}"} {
			h.mux.HandleFunc(method+" /exec/{namespace}/{name}"+uid+"/{container}", h.exec)
			h.mux.HandleFunc(method+" /attach/{namespace}/{name}"+uid+"/{container}", h.attach)
			h.mux.HandleFunc(method+" /portForward/{namespace}/{name}"+uid, h.portForward)
		}
	}
	for _, uid := range []string{"", "/{uid}"} {
		h.mux.HandleFunc("POST /run/{namespace}/{name}"+uid+"/{container}", h.run)
	}
	if cfg.Logs != nil {
		h.mux.HandleFunc("GET /containerLogs/{namespace}/{name}/{container}", cfg.Logs)
	}
	return h
}

// Paths are the prefixes of all that a Handler serves, and whether one only looks there.
func Paths() map[string]bool {
	return map[string]bool{"/exec/": false, "/attach/": false, "/portForward/": false, "/run/": false, "/containerLogs/": true}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		http.Error(w, "monopod is stopping", http.StatusServiceUnavailable)
		return
	}
	h.wg.Add(1)
	h.mu.Unlock()
	defer h.wg.Done()
	h.mux.ServeHTTP(w, r)
}

// Wait lets nothing new in and waits until all connections have ended, as they do with the contexts of their requests, or
// ctx ends.
func (h *Handler) Wait(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); h.wg.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// fault is an error with a status code of HTTP.
type fault struct {
	code int
	text string
}

// Error implements error.
func (f *fault) Error() string { return f.text }

func faultf(code int, format string, args ...any) *fault {
	return &fault{code: code, text: fmt.Sprintf(format, args...)}
}

// fail answers as the kubelet does, with the bare text.
func (h *Handler) fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*fault](err); ok {
		code = f.code
	}
	http.Error(w, err.Error(), code)
}

// pod finds the pod of a request.
func (h *Handler) pod(r *http.Request) (*corev1.Pod, error) {
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("name"), r.PathValue("uid")
	pod, err := h.cfg.Pods.FindPod(r.Context(), namespace, name)
	switch {
	case err != nil:
		return nil, faultf(http.StatusServiceUnavailable, "%s", err)
	case pod == nil || uid != "" && uid != string(pod.UID):
		return nil, faultf(http.StatusNotFound, "pod %q does not exist", namespace+"/"+name)
	}
	return pod, nil
}

// target is a container that runs.
type target struct {
	key       manifests.Key
	id        string
	container *corev1.Container
}

// target finds the container of a request.
func (h *Handler) target(r *http.Request) (target, error) {
	pod, err := h.pod(r)
	if err != nil {
		return target{}, err
	}
	name := r.PathValue("container")
	t := target{key: manifests.Key{Namespace: pod.Namespace, Name: pod.Name}, container: manifests.FindContainer(&pod.Spec, name)}
	if t.container == nil {
		return t, faultf(http.StatusNotFound, "container not found (%q)", name)
	}
	if t.id = RunningID(pod, name); t.id == "" {
		return t, faultf(http.StatusBadRequest, "container %q of pod %q is not running", name, pod.Name)
	}
	return t, nil
}

// RunningID is the id of a container that runs, empty when it does not.
func RunningID(pod *corev1.Pod, name string) (id string) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == name && s.State.Running != nil {
				_, id, _ = strings.Cut(s.ContainerID, "://")
			}
		}
	}
	return id
}
