// Package kubeletapi assembles the HTTP endpoints of a kubelet: metrics, stats, pods, health and streams, on the socket and on TCP ports.
//
// It must not implement endpoints, which node/endpoints and node/secure do. It starts no goroutines.
package kubeletapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemon/state"
	"monopod/internal/daemon/telemetry"
	"monopod/internal/version"
	"monopod/node"
	"monopod/node/apiserver/identity"
	"monopod/node/endpoints"
	"monopod/node/health"
	"monopod/node/metrics"
	"monopod/node/secure"
	"monopod/node/stats"
	"monopod/node/stream"
)

// Deps is what the endpoints need besides the configuration.
type Deps struct {
	Log    *slog.Logger
	State  *state.Store
	Tally  *metrics.Tally
	Stats  *stats.Collector
	Usage  *telemetry.Usage
	Checks *health.Checks
	// Pressure returns the pressure conditions of the node; nil: they are not monitored.
	Pressure func() []corev1.NodeCondition
	// Streams serves exec, attach and port-forward.
	Streams http.Handler
	// Answered is called after each request.
	Answered func()
	// Addresses returns the addresses of this machine, for its certificate.
	Addresses func() ([]string, error)
	// Link is the connection to an API server; nil: there is none.
	Link *cluster.Link
}

// API has the endpoints. On the socket pods have their local names, over TCP those in the API server.
type API struct {
	cfg    *config.Loaded
	deps   Deps
	Socket *endpoints.Endpoints
	tcp    *endpoints.Endpoints
}

// New returns the endpoints.
func New(cfg *config.Loaded, d Deps) *API {
	a := &API{cfg: cfg, deps: d}
	a.Socket = a.endpoints(func(name, _ string) string { return name })
	if a.tcp = a.Socket; d.Link != nil && cfg.Port+cfg.ReadOnlyPort > 0 {
		a.tcp = a.endpoints(d.Link.ShownName)
	}
	return a
}

// endpoints returns the endpoints with pods named by a function of their local name and UID.
func (a *API) endpoints(named func(name, uid string) string) *endpoints.Endpoints {
	d, cfg := &a.deps, a.cfg
	usage := namedUsage{d.Stats, named}
	configuration, _ := json.Marshal(cfg.Nested()) // strings, numbers and lists of them always encode
	images := filepath.Join(cfg.RootDirectory, "containerd")
	if cfg.ContainerRuntimeEndpoint != "" {
		images = cfg.RootDirectory // an external containerd does not tell where its images are
	}
	return endpoints.New(endpoints.Config{
		Node: cfg.NodeName, StreamPaths: slices.Sorted(maps.Keys(stream.Paths())), Checks: d.Checks, Stats: usage, Tally: d.Tally, Configuration: configuration,
		Metrics: metrics.Handlers(metrics.Sources{
			Node: cfg.NodeName, Version: version.String(), Tally: d.Tally, Checks: d.Checks, Stats: usage,
			Pods: a.podObjects, Inputs: func() map[[2]string]int { return telemetry.CountInputs(d.State.Inputs()) }, Conditions: a.pressure,
			Probes: func() []metrics.ProbeTotals {
				_, statuses, _ := d.State.Current()
				return namedProbes(telemetry.CountProbes(statuses), named)
			},
		}, d.Log),
		Pods: func(context.Context) ([]corev1.Pod, error) {
			views, err := d.State.Pods()
			return namedPods(node.Objects(views), named), err
		},
		Running: func(ctx context.Context) ([]corev1.Pod, error) {
			pods, err := d.Usage.Running(ctx)
			return namedPods(pods, named), err
		},
		Streams: d.Streams, RootDirectory: cfg.RootDirectory, ImageDirectory: images,
		NoDebugging: !cfg.EnableDebuggingHandlers, Profiling: cfg.EnableProfilingHandler, Answered: d.Answered, Log: d.Log,
	})
}

// podObjects returns the pods with their status, which must not be modified; none while containers cannot be seen.
func (a *API) podObjects() []*corev1.Pod {
	views, err := a.deps.State.Pods()
	if err != nil {
		return nil // the health checks report it
	}
	pods := make([]*corev1.Pod, 0, len(views))
	for _, v := range views {
		pods = append(pods, v.Pod)
	}
	return pods
}

func (a *API) pressure() []corev1.NodeCondition {
	if a.deps.Pressure == nil {
		return nil
	}
	return a.deps.Pressure()
}

// namedUsage is the usage of pods under the names that the API server has for them.
type namedUsage struct {
	*stats.Collector
	named func(name, uid string) string
}

// All implements endpoints.Usage and metrics.Usage.
func (u namedUsage) All(ctx context.Context, o stats.Options) (stats.Machine, []stats.Pod, error) {
	m, pods, err := u.Collector.All(ctx, o)
	for i := range pods {
		pods[i].Name = u.named(pods[i].Name, pods[i].UID)
	}
	return m, pods, err
}

func namedPods(pods []corev1.Pod, named func(name, uid string) string) []corev1.Pod {
	for i := range pods {
		pods[i].Name = named(pods[i].Name, string(pods[i].UID))
	}
	return pods
}

func namedProbes(probes []metrics.ProbeTotals, named func(name, uid string) string) []metrics.ProbeTotals {
	for i := range probes {
		probes[i].Pod = named(probes[i].Pod, probes[i].UID)
	}
	return probes
}

// Ports returns the servers of the configured TCP ports.
func (a *API) Ports() (all []secure.Config) {
	cfg := &a.cfg.Server
	add := func(c secure.Config) {
		c.MaxConnections, c.Log = cfg.MaxConnections, a.deps.Log
		all = append(all, c)
	}
	if cfg.Port > 0 {
		version, _ := secure.ParseVersion(cfg.TLSMinVersion) // validated with the configuration
		suites, _ := secure.ParseCipherSuites(cfg.TLSCipherSuites)
		add(secure.Config{
			Address: config.HostPort(cfg.Address, cfg.Port), Cert: a.certificate(), MinVersion: version, CipherSuites: suites,
			Access: a.access(), Handler: a.tcp.Handler(), Streams: a.tcp.LongRunning,
		})
	}
	if cfg.ReadOnlyPort > 0 {
		add(secure.Config{Address: config.HostPort(cfg.Address, cfg.ReadOnlyPort), Handler: a.tcp.ReadOnly()})
	}
	if cfg.HealthzPort > 0 {
		add(secure.Config{Address: config.HostPort(cfg.HealthzBindAddress, cfg.HealthzPort), Handler: a.Socket.Healthz()})
	}
	return all
}

func (a *API) certificate() *secure.Certificate {
	if a.cfg.TLSCertFile != "" {
		return secure.Files(a.cfg.TLSCertFile, a.cfg.TLSPrivateKeyFile, a.deps.Log)
	}
	ips := containers.NodeIPs(a.deps.Addresses, a.deps.Log)
	own := secure.SelfSigned(filepath.Join(a.cfg.RootDirectory, "pki"), a.cfg.NodeName, func() []net.IP { return config.IpsOf(ips()) }, a.deps.Log)
	if a.deps.Link != nil && a.cfg.ServerTLSBootstrap {
		return secure.Issued(filepath.Join(a.cfg.CertDirectory, identity.ServingCertificateFile), own, a.deps.Log)
	}
	return own
}

// access returns how requests on the secure port are authenticated and authorized.
func (a *API) access() *secure.Access {
	auth := &a.cfg.Authentication
	access := &secure.Access{Anonymous: auth.Anonymous.Enabled, Authorizer: secure.AlwaysAllow{}}
	if auth.X509.ClientCAFile != "" {
		access.ClientCA = secure.NewAuthorities(auth.X509.ClientCAFile, a.deps.Log)
	}
	if auth.TokenFile != "" {
		access.Tokens = append(access.Tokens, secure.NewTokenFile(auth.TokenFile, a.deps.Log))
	}
	var hook reviews
	if a.deps.Link != nil {
		hook.Webhook = a.deps.Link.Webhook()
	}
	if auth.Webhook.Enabled && hook.Webhook != nil {
		access.Tokens = append(access.Tokens, hook)
	}
	switch a.cfg.Authorization.Mode {
	case config.AuthorizeRules:
		access.Authorizer = secure.Rules(a.cfg.Authorization.Rules)
	case config.AuthorizeWebhook:
		access.Authorizer = hook
	}
	return access
}
