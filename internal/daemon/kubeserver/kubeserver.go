// Package kubeserver assembles the Kubernetes API: State, Writer, authorization and streams, on the socket and on the TLS listener.
//
// It must not know kinds or objects. Nothing is created before the first request: an unused API costs the daemon nothing.
//
// Goroutines: those of the listener.
package kubeserver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/node"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/listener"
	"monopod/node/kubeapi/streams"
	"monopod/node/kubeapi/tokens"
	"monopod/node/localapi"
)

// Deps is what the API needs in addition to the configuration.
type Deps struct {
	Log *slog.Logger
	// State provides all objects; it is not called before the first request.
	State kubeapi.State
	// Writer stores the writes of clients; if nil, the API is read-only.
	Writer kubeapi.Writer
	// Streams connects to pods; Pod finds one, even while the objects of State cannot be served.
	Streams *streams.Handler
	Pod     func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Authority issues the certificates of the listener and its clients.
	Authority *authority.Authority
	// Listener already listens on the address of the API; if nil, Run listens.
	Listener net.Listener
	// Tokens verifies service account tokens; nil disables them. Issuer signs them.
	Tokens access.AudienceAuthenticator
	Issuer kubeapi.Issuer
	// Version is the version of monopod.
	Version string
	// Answered is called after every request.
	Answered func()
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// API serves the Kubernetes API. Create it with New.
type API struct {
	cfg    *config.Loaded
	deps   Deps
	policy access.Policy
	listen listener.Config

	// pods serves connections to pods. Like own, it needs no objects.
	pods http.Handler
	// own serves paths that need no objects of the API, and therefore no epoch and no memory for objects.
	own *http.ServeMux
	// watches counts the watches of both.
	watches *kubeapi.Watches

	// mu guards server, which the first request creates.
	mu     sync.Mutex
	server http.Handler
}

// Dir returns the directory for the files of the API.
func Dir(cfg *config.Loaded) string { return filepath.Join(cfg.RootDirectory, "api") }

// New returns the API. It does no I/O.
func New(cfg *config.Loaded, d Deps) *API {
	a := &API{cfg: cfg, deps: d, policy: access.NewPolicyWith(cfg.AccessRules(), cfg.APIServer.NamespaceAccess), watches: kubeapi.NewWatches()}
	a.listen = listener.Config{
		Address: cfg.APIServer.Address, Listener: d.Listener, MaxConnections: cfg.APIServer.MaxConnections, Authority: d.Authority, Anonymous: cfg.APIServer.Anonymous,
		Handler: http.HandlerFunc(a.ServeHTTP), Log: d.Log,
	}
	if d.Pod != nil && d.Streams != nil {
		a.pods = kubeapi.Connector(kubeapi.Config{Policy: a.policy, Streams: d.Streams, Pod: d.Pod, Log: d.Log})
	}
	var tokens access.Union
	if d.Tokens != nil {
		tokens = append(tokens, d.Tokens)
	}
	if file := cfg.APIServer.TokenFile; file != "" {
		tokens = append(tokens, listener.TokenFile(file, d.Log))
	}
	if len(tokens) > 0 {
		a.listen.Tokens = tokens
	}
	return a
}

// handler returns the handler of requests. The epoch is incremented and stored before the first response.
func (a *API) handler() (http.Handler, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil {
		return a.server, nil
	}
	now := time.Now
	if a.deps.Now != nil {
		now = a.deps.Now
	}
	epoch, err := raiseEpoch(Dir(a.cfg), now(), a.deps.Log)
	if err != nil {
		return nil, err
	}
	a.server = kubeapi.New(kubeapi.Config{
		State: a.deps.State, Writer: a.deps.Writer, Policy: a.policy, ImmutablePods: a.cfg.APIServer.ImmutablePods(), Tokens: a.listen.Tokens, Issuer: a.deps.Issuer, Served: a.cfg.ServedKinds(),
		URL: authority.ServerURL(a.cfg.APIServer.Address), Epoch: epoch, Node: a.cfg.NodeName,
		Version: a.deps.Version, Streams: a.deps.Streams, Watches: a.watches, Log: a.deps.Log,
	}).Handler()
	return a.server, nil
}

// WithOwn adds the paths of monopod.dev that the daemon serves itself, on the socket and the listener, and returns their handler for the
// socket. Call it before the first request.
func (a *API) WithOwn(own *http.ServeMux) http.Handler {
	own.Handle("POST "+localapi.Self("kubeconfig"), authority.Handler(a.deps.Authority, a.cfg.APIServer.Address, a.cfg.NodeName))
	a.own = own
	return http.HandlerFunc(a.onSocket)
}

// serves returns the handler of a request. The daemon's own paths do not wait for an epoch, so that its commands work while the disk is
// full.
func (a *API) serves(r *http.Request) (http.Handler, error) {
	if a.own != nil && strings.HasPrefix(r.URL.Path, localapi.Base+"/") {
		if _, pattern := a.own.Handler(r); pattern != "" {
			return a.watches.Limit(a.own), kubeapi.Permit(a.policy, r)
		}
	}
	if a.pods != nil && kubeapi.Connects(r) {
		return a.pods, nil
	}
	h, err := a.handler()
	if err != nil {
		err = apierrors.NewServiceUnavailable(err.Error())
	}
	return h, err
}

// ServeHTTP serves a request with the user in its context.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, err := a.serves(r)
	if err != nil {
		codec.Fail(w, r, err)
		return
	}
	h.ServeHTTP(w, r)
	if a.deps.Answered != nil {
		a.deps.Answered()
	}
}

// onSocket serves a request of a process of this machine: root may do everything; other users, if an administrator gave them access to the
// socket, may read.
func (a *API) onSocket(w http.ResponseWriter, r *http.Request) {
	if err := listener.Impersonation(r); err != nil {
		codec.Fail(w, r, err)
		return
	}
	user := access.User{Name: "root", Groups: []string{access.GroupMasters, access.GroupAuthenticated}}
	if !node.MayChange(r.Context()) {
		user = access.User{Name: "local", Groups: []string{access.GroupView, access.GroupAuthenticated}}
	}
	a.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), user)))
}

// Visible reports whether the user of a request to the daemon's own paths may see an object.
func (a *API) Visible(r *http.Request, o metav1.Object) bool {
	return kubeapi.Visible(a.policy, a.deps.Writer, access.UserOf(r.Context()), o)
}

// AdmitRollback returns why the user of a request may not roll back to a revision of a pod: it must be one that the user may write.
func (a *API) AdmitRollback(ctx context.Context, pod *corev1.Pod) error {
	return access.Admit(access.UserOf(ctx), a.policy, "roll back to", pod)
}

// Routes returns the paths of the socket, by patterns of a ServeMux.
func (a *API) Routes() map[string]http.Handler {
	routes := map[string]http.Handler{}
	for _, path := range []string{"/api", "/api/", "/apis", "/apis/", "/openapi/", "/version", tokens.ConfigurationPath, tokens.KeySetPath} {
		routes[path] = http.HandlerFunc(a.onSocket)
	}
	return routes
}

// Run serves the listener until ctx ends.
func (a *API) Run(ctx context.Context) error { return serve(ctx, a.listen) }

// RunAt serves an additional address, which need not be assigned to an interface yet, until ctx ends.
func (a *API) RunAt(ctx context.Context, address string) error {
	cfg := a.listen
	cfg.Address, cfg.Listener, cfg.Early = address, nil, true
	return serve(ctx, cfg)
}

func serve(ctx context.Context, cfg listener.Config) error {
	server, err := listener.New(cfg)
	if err == nil {
		err = server.Run(ctx)
	}
	if err != nil {
		return fmt.Errorf("listener of the Kubernetes API: %w", err)
	}
	return nil
}
