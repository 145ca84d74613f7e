package daemon

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/version"
	"monopod/node"
	"monopod/node/apiserver/identity"
	"monopod/node/endpoints"
	"monopod/node/metrics"
	"monopod/node/secure"
	"monopod/node/stats"
)

// openEndpoints makes what answers as a kubelet does: to the socket by the names of pods here, over TCP by those that the API server
// knows them by.
func (a *App) openEndpoints() {
	own := func(name, _ string) string { return name }
	a.reporter = a.newReporter()
	a.ends = a.newEndpoints(own)
	if a.overTCP = a.ends; a.reporter != nil && a.cfg.Port+a.cfg.ReadOnlyPort > 0 {
		a.overTCP = a.newEndpoints(a.reporter.ShownName)
	}
}

// newEndpoints returns what answers; named is how it calls the pod that has a name and a uid here.
func (a *App) newEndpoints(named func(name, uid string) string) *endpoints.Endpoints {
	checks, usage := a.checks(), namedUsage{a.stats, named}
	configuration, _ := json.Marshal(a.cfg.Nested()) // texts, numbers and lists of them always encode
	images := filepath.Join(a.cfg.RootDirectory, "containerd")
	if a.cfg.ContainerRuntimeEndpoint != "" {
		images = a.cfg.RootDirectory // where that containerd has them it does not tell
	}
	return endpoints.New(endpoints.Config{
		Node: a.cfg.NodeName, Checks: checks, Stats: usage, Tally: a.tally, Configuration: configuration,
		Metrics: metrics.Handlers(metrics.Sources{
			Node: a.cfg.NodeName, Version: version.String(), Tally: a.tally, Checks: checks, Stats: usage,
			Pods: a.Board.PodObjects, Inputs: a.Board.CountInputs, Conditions: a.strain.conditions, Probes: func() []metrics.ProbeTotals { return namedProbes(a.Board.CountProbes(), named) },
		}, a.Log),
		Pods: func(context.Context) ([]corev1.Pod, error) {
			views, err := a.Board.Pods()
			return namedPods(node.Objects(views), named), err
		},
		Running: func(ctx context.Context) ([]corev1.Pod, error) {
			pods, err := a.gauges.Running(ctx)
			return namedPods(pods, named), err
		},
		Streams:       http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.streams.ServeHTTP(w, r) }),
		RootDirectory: a.cfg.RootDirectory, ImageDirectory: images,
		NoDebugging: !a.cfg.EnableDebuggingHandlers, Profiling: a.cfg.EnableProfilingHandler, Answered: a.memory.Answered, Log: a.Log,
	})
}

// namedUsage is what pods use, by other names.
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

// serve answers over TCP where that is configured, until ctx ends.
func (a *App) serve(ctx context.Context, g *errgroup.Group) {
	for _, c := range a.ports() {
		s := secure.NewServer(c)
		g.Go(func() error { return s.Run(ctx) })
	}
}

// ports are those that answer over TCP.
func (a *App) ports() (all []secure.Config) {
	cfg := &a.cfg.Server
	add := func(c secure.Config) {
		c.MaxConnections, c.Log = cfg.MaxConnections, a.Log
		all = append(all, c)
	}
	if cfg.Port > 0 {
		version, _ := secure.ParseVersion(cfg.TLSMinVersion) // checked when it was loaded
		suites, _ := secure.ParseCipherSuites(cfg.TLSCipherSuites)
		add(secure.Config{
			Address: config.HostPort(cfg.Address, cfg.Port), Cert: a.certificate(), MinVersion: version, CipherSuites: suites,
			Access: a.access(), Handler: a.overTCP.Handler(), Streams: endpoints.LongRunning,
		})
	}
	if cfg.ReadOnlyPort > 0 {
		add(secure.Config{Address: config.HostPort(cfg.Address, cfg.ReadOnlyPort), Handler: a.overTCP.ReadOnly()})
	}
	if cfg.HealthzPort > 0 {
		add(secure.Config{Address: config.HostPort(cfg.HealthzBindAddress, cfg.HealthzPort), Handler: a.ends.Healthz()})
	}
	return all
}

func (a *App) certificate() *secure.Certificate {
	if a.cfg.TLSCertFile != "" {
		return secure.Files(a.cfg.TLSCertFile, a.cfg.TLSPrivateKeyFile, a.Log)
	}
	ips := nodeIPs(a.machine.Addresses, a.Log)
	own := secure.SelfSigned(filepath.Join(a.cfg.RootDirectory, "pki"), a.cfg.NodeName, func() []net.IP { return config.IpsOf(ips()) }, a.Log)
	if a.reporter != nil && a.cfg.ServerTLSBootstrap {
		return secure.Issued(filepath.Join(a.cfg.CertDirectory, identity.ServingCertificateFile), own, a.Log)
	}
	return own
}

// access says who may make which requests.
func (a *App) access() *secure.Access {
	auth := &a.cfg.Authentication
	access := &secure.Access{Anonymous: auth.Anonymous.Enabled, Authorizer: secure.AlwaysAllow{}}
	if auth.X509.ClientCAFile != "" {
		access.ClientCA = secure.NewAuthorities(auth.X509.ClientCAFile, a.Log)
	}
	if auth.TokenFile != "" {
		access.Tokens = append(access.Tokens, secure.NewTokenFile(auth.TokenFile, a.Log))
	}
	var hook reviews
	if a.reporter != nil {
		hook.Webhook = a.reporter.Webhook()
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

// routes are the paths that the socket has besides its own.
func (a *App) routes() map[string]http.Handler { return a.ends.Routes() }
