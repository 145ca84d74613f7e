package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/nodeevents"
	"monopod/internal/daemon/state"
	"monopod/internal/daemon/telemetry"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/apiserver/webhook"
	"monopod/node/events"
	"monopod/node/health"
	"monopod/node/metrics"
	"monopod/node/secure"
	"monopod/node/stats"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
)

// newParts returns a configuration, which a test changes, and the dependencies of its endpoints. No runtime is open.
func newParts(t *testing.T) (*config.Loaded, Deps) {
	t.Helper()
	cfg := &config.Loaded{Config: config.Config{NodeName: "node"}}
	cfg.RootDirectory, cfg.EnableDebuggingHandlers = t.TempDir(), true
	usage := &telemetry.Usage{}
	collector, err := telemetry.NewCollector(&cfg.Config, func() (stats.Hierarchies, error) { return stats.Hierarchies{}, nil }, usage)
	if err != nil {
		t.Fatal(err)
	}
	changes, log := &state.Changes{}, slog.New(slog.DiscardHandler)
	return cfg, Deps{
		Log: log, Tally: metrics.NewTally(), Stats: collector, Usage: usage, Checks: health.New(), Addresses: func() ([]string, error) { return []string{"192.0.2.1"}, nil },
		State:   state.New(changes, rollout.New(rollout.Config{Log: log, Notify: changes.Notify, Clock: boottime.Now})),
		Streams: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "stream") }),
	}
}

// withServer configures an API server that cannot be reached.
func withServer(t *testing.T, cfg *config.Loaded, d *Deps) {
	t.Helper()
	cfg.Kubeconfig = filepath.Join(cfg.RootDirectory, "kubeconfig")
	recorder := nodeevents.New(events.New(events.Config{Dir: t.TempDir(), Log: d.Log}), "node", d.Log)
	d.Link = cluster.New(cfg, cluster.Deps{Log: d.Log, State: d.State, Events: recorder, Unmirrored: &state.Unmirrored{}, Changed: cluster.NewSignal()})
}

// run opens a runtime on which a pod web runs. It must be called in a synctest bubble.
func run(t *testing.T, s *state.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := pool.New(runtimetest.NewFake(), pool.Config{NodeName: "node"})
	s.Publish(model.Desired{Pods: []*manifests.Pod{runtimetest.NewPod("web", runtimetest.NewContainer("c", runtimetest.ScriptServe))}})
	var all errgroup.Group
	all.Go(func() error { return s.Rollouts.Run(ctx) })
	all.Go(func() error { return p.Run(ctx) })
	all.Go(func() error { return s.Attach(ctx, p, nil) })
	t.Cleanup(func() {
		cancel()
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

// get returns the answer of a handler.
func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestEachPortThatIsConfiguredIsServed(t *testing.T) {
	cfg, d := newParts(t)
	if all := New(cfg, d).Ports(); len(all) != 0 {
		t.Errorf("without ports: %+v", all)
	}
	cfg.Address, cfg.Port, cfg.ReadOnlyPort, cfg.HealthzPort, cfg.HealthzBindAddress, cfg.MaxConnections = "::", 1, 2, 3, "127.0.0.1", 7
	cfg.TLSMinVersion = "VersionTLS13"
	d.State.Blind(errors.New("no containerd"))
	all := New(cfg, d).Ports()
	if len(all) != 3 {
		t.Fatalf("%d ports: %+v", len(all), all)
	}
	for i, want := range []struct {
		address string
		secure  bool
		// codes are the answers to each path.
		codes map[string]int
	}{
		{"[::]:1", true, map[string]int{"/healthz": 200, "/pods": 503, "/configz": 200, "/runningpods/": 503, "/exec/default/web/c": 200, "/none": 404}},
		{"[::]:2", false, map[string]int{"/healthz": 200, "/pods": 503, "/metrics": 200, "/configz": 404, "/runningpods/": 404, "/exec/default/web/c": 404}},
		{"127.0.0.1:3", false, map[string]int{"/healthz": 200, "/readyz": 200, "/pods": 404, "/metrics": 404}},
	} {
		port := all[i]
		if port.Address != want.address || (port.Cert != nil) != want.secure || (port.Access != nil) != want.secure || (port.Streams != nil) != want.secure || port.MaxConnections != 7 {
			t.Errorf("%s: %+v", want.address, port)
		}
		for path, code := range want.codes {
			if got, body := get(t, port.Handler, path); got != code {
				t.Errorf("%s%s: %d %s, want %d", want.address, path, got, body, code)
			}
		}
	}
	if all[0].MinVersion == 0 {
		t.Error("any version of TLS will do")
	}
	cfg.EnableDebuggingHandlers = false
	for path, code := range map[string]int{"/exec/default/web/c": 405, "/configz": 405, "/pods": 503, "/healthz": 200} {
		if got, _ := get(t, New(cfg, d).Ports()[0].Handler, path); got != code {
			t.Errorf("without debugging handlers %s: %d, want %d", path, got, code)
		}
	}
}

// TestPodsHaveTheNamesOfTheAPIServerOverTCPOnly: users of the socket know their own names.
func TestPodsHaveTheNamesOfTheAPIServerOverTCPOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, d := newParts(t)
		cfg.ReadOnlyPort = 2
		withServer(t, cfg, &d)
		d.Usage.Attach(runs{})
		run(t, d.State)
		a := New(cfg, d)
		for name, c := range map[string]struct {
			handler http.Handler
			want    string
		}{"socket": {a.Socket.Handler(), "web"}, "tcp": {a.tcp.Handler(), "web-node"}} {
			for _, path := range []string{"/pods", "/runningpods/"} {
				if code, body := get(t, c.handler, path); code != 200 || strings.Count(body, fmt.Sprintf(`"metadata":{"name":%q`, c.want)) != 1 {
					t.Errorf("%s%s: %d %s", name, path, code, body)
				}
			}
		}
		if code, body := get(t, a.Ports()[0].Handler, "/metrics"); code != 200 || !strings.Contains(body, "\nkubelet_running_pods 1\n") {
			t.Errorf("metrics: %d %s", code, body)
		}
	})
	named := func(name, uid string) string { return name + "/" + uid }
	if p := namedProbes([]metrics.ProbeTotals{{Pod: "web", UID: "u"}}, named); p[0].Pod != "web/u" {
		t.Errorf("probes: %+v", p)
	}
}

// runs is a runtime with a pod that runs.
type runs struct{ telemetry.Measured }

func (runs) Places(context.Context) ([]model.Place, error) {
	return []model.Place{{Key: runtimetest.KeyOf("web"), UID: "u", Containers: []model.ContainerPlace{{Name: "c"}}}}, nil
}

func TestWithoutARuntimeNoPodsAreCounted(t *testing.T) {
	cfg, d := newParts(t)
	d.State.Publish(model.Desired{Pods: []*manifests.Pod{runtimetest.NewPod("web")}, Inputs: []model.Input{{Source: "file", State: model.InputAccepted}}})
	d.State.Blind(errors.New("no containerd"))
	d.Pressure = func() []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}
	}
	h := New(cfg, d).Socket.Handler()
	if code, body := get(t, h, "/pods"); code != 200 || !strings.Contains(body, `"phase":"Unknown"`) {
		t.Errorf("the desired pods: %d %s", code, body)
	}
	code, body := get(t, h, "/metrics")
	if code != 200 || strings.Contains(body, "\nkubelet_running_pods 1") || !strings.Contains(body, `monopod_inputs{source="file",state="Accepted"} 1`) || !strings.Contains(body, "DiskPressure") {
		t.Errorf("metrics: %d %s", code, body)
	}
}

func TestWhoMayUseTheSecurePort(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*config.Config)
		// server: there is an API server.
		server            bool
		authorities, anon bool
		tokens            int
		// allowed and err are about a request of ada for stats.
		allowed bool
		err     error
	}{
		"nothing configured": {func(*config.Config) {}, false, false, false, 0, true, nil},
		"certificates":       {func(c *config.Config) { c.Authentication.X509.ClientCAFile = "ca" }, false, true, false, 0, true, nil},
		"anonymous":          {func(c *config.Config) { c.Authentication.Anonymous.Enabled = true }, false, false, true, 0, true, nil},
		"rules": {func(c *config.Config) {
			c.Authorization = config.Authorization{Mode: config.AuthorizeRules, Rules: map[string][]string{"user:bob": {"stats"}}}
		}, false, false, false, 0, false, nil},
		"rules for ada": {func(c *config.Config) {
			c.Authorization = config.Authorization{Mode: config.AuthorizeRules, Rules: map[string][]string{"user:ada": {"stats"}}}
		}, false, false, false, 0, true, nil},
		"tokens, no server to ask": {func(c *config.Config) { c.Authentication.TokenFile, c.Authentication.Webhook.Enabled = "tokens", true }, false, false, false, 1, true, nil},
		"tokens, and a server":     {func(c *config.Config) { c.Authentication.TokenFile, c.Authentication.Webhook.Enabled = "tokens", true }, true, false, false, 2, true, nil},
		"no server is configured":  {func(c *config.Config) { c.Authorization.Mode = config.AuthorizeWebhook }, false, false, false, 0, false, webhook.ErrNoServer},
		"the server is away":       {func(c *config.Config) { c.Authorization.Mode = config.AuthorizeWebhook }, true, false, false, 0, false, webhook.ErrNoServer},
	} {
		cfg, d := newParts(t)
		if c.edit(&cfg.Config); c.server {
			withServer(t, cfg, &d)
		}
		a := New(cfg, d).access()
		if (a.ClientCA != nil) != c.authorities || a.Anonymous != c.anon || len(a.Tokens) != c.tokens {
			t.Errorf("%s: %+v", name, a)
		}
		user := secure.User{Name: "ada", Groups: []string{secure.GroupAuthenticated}, Extra: map[string][]string{"a": {"b"}}}
		allowed, err := a.Authorizer.Authorize(t.Context(), secure.Attributes{User: user, Verb: "get", Subresource: "stats", Path: "/stats/summary"})
		if allowed != c.allowed || !errors.Is(err, c.err) {
			t.Errorf("%s: allowed %t, %v; want %t, %v", name, allowed, err, c.allowed, c.err)
		}
		if c.server && len(a.Tokens) > 0 {
			if _, ok, err := a.Tokens[len(a.Tokens)-1].AuthenticateToken(t.Context(), "token"); ok || !errors.Is(err, webhook.ErrNoServer) {
				t.Errorf("%s: token: %t, %v", name, ok, err)
			}
		}
	}
}
