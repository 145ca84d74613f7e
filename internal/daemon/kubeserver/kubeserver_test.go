package kubeserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/kubetest"
	"monopod/node/kubeapi/streams"
	"monopod/node/kubeapi/tokens"
	"monopod/node/localapi"
)

// api returns the API of a configuration, with one pod.
func api(t *testing.T, configure func(*config.Loaded)) *API {
	t.Helper()
	cfg := &config.Loaded{}
	cfg.RootDirectory, cfg.NodeName = t.TempDir(), "node"
	if configure != nil {
		configure(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	store := kubetest.New(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	return New(cfg, Deps{Log: log, State: store, Writer: store, Authority: authority.New(authority.Config{Dir: filepath.Join(cfg.RootDirectory, "pki"), Log: log}), Version: "v1"})
}

// as asks for a path as a user.
func as(h http.Handler, u access.User, path string) (code int, body string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(access.WithUser(context.Background(), u), http.MethodGet, path, nil)
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestNothingIsMadeBeforeTheFirstRequest(t *testing.T) {
	a := api(t, nil)
	epoch := filepath.Join(Dir(a.cfg), epochFile)
	if _, err := os.Stat(epoch); !os.IsNotExist(err) {
		t.Error(err)
	}
	root := access.User{Name: "root", Groups: []string{access.GroupMasters}}
	for range 2 {
		if code, body := as(a, root, "/api/v1/pods"); code != http.StatusOK || !strings.Contains(body, `"web"`) {
			t.Errorf("%d %s", code, body)
		}
	}
	if n, err := readEpoch(epoch); err != nil || n == 0 {
		t.Error(n, err)
	}
}

func TestTheRulesOfTheConfigurationCount(t *testing.T) {
	a := api(t, func(cfg *config.Loaded) { cfg.APIServer.Rules = map[string][]string{"user:ci": {"pods@default"}} })
	for _, tt := range []struct {
		path string
		code int
	}{
		{"/api/v1/namespaces/default/pods", http.StatusOK},
		{"/api/v1/pods", http.StatusForbidden},
		{"/api/v1/namespaces/default/secrets", http.StatusForbidden},
	} {
		if code, body := as(a, access.User{Name: "ci"}, tt.path); code != tt.code {
			t.Errorf("%s: %d %s", tt.path, code, body)
		}
	}
}

func TestInertKindsAreThoseOfTheConfiguration(t *testing.T) {
	a := api(t, func(cfg *config.Loaded) { cfg.APIServer.InertKinds = []string{"Role"} })
	for path, want := range map[string]int{
		"/apis/rbac.authorization.k8s.io/v1/roles": http.StatusOK, "/apis/rbac.authorization.k8s.io/v1/clusterroles": http.StatusNotFound,
		"/apis/rbac.authorization.k8s.io/v1": http.StatusOK, "/openapi/v3/apis/rbac.authorization.k8s.io/v1": http.StatusOK, "/apis/policy/v1": http.StatusNotFound,
	} {
		if code, body := as(a, access.User{Name: "root", Groups: []string{access.GroupMasters, access.GroupAuthenticated}}, path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestWhatANamespaceLetsPodsDoCounts(t *testing.T) {
	a := api(t, func(cfg *config.Loaded) { cfg.APIServer.NamespaceAccess = map[string]string{"ops": "admin"} })
	pod := func(namespace string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	}
	edit := access.User{Name: "ci", Groups: []string{access.GroupEdit}}
	if err := access.Admit(edit, a.policy, "create", pod("ops")); err == nil {
		t.Error("who may edit gets the token of an administrator")
	}
	if err := access.Admit(edit, a.policy, "create", pod("shop")); err != nil {
		t.Error(err)
	}
}

// TestPodsAreReachedWithoutAnEpoch: a command in a pod is what frees a full disk.
func TestPodsAreReachedWithoutAnEpoch(t *testing.T) {
	kubelet := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	a := api(t, nil)
	if err := os.WriteFile(Dir(a.cfg), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a = New(a.cfg, Deps{Log: a.deps.Log, Streams: streams.New(streams.Config{Streams: kubelet}), Pod: func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		switch {
		case namespace == "default" && name == "web":
			return pod, nil
		case name == "hidden":
			return nil, errors.New("the runtime does not answer")
		}
		return nil, nil
	}})
	root, viewer := access.User{Name: "root", Groups: []string{access.GroupMasters}}, access.User{Name: "v", Groups: []string{access.GroupView}}
	for _, tt := range []struct {
		user access.User
		path string
		code int
		want string
	}{
		{root, "pods/web/log", 200, "/containerLogs/default/web/c"},
		{root, "pods/web/exec?command=true&stdout=true", 200, "/exec/default/web/c"},
		{root, "pods/web/attach?stdout=true", 200, "/attach/default/web/c"},
		{root, "pods/web/portforward", 200, "/portForward/default/web"},
		{root, "pods/web/log?container=x", 400, "container x is not valid"},
		{root, "pods/gone/log", 404, "not found"},
		{root, "pods/hidden/exec?command=true", 503, "the runtime does not answer"},
		{viewer, "pods/web/log", 200, "/containerLogs/default/web/c"},
		{viewer, "pods/web/exec?command=true&stdout=true", 403, "cannot"},
		{root, "pods/web/proxy/", 503, "file exists"},
		{root, "pods/web", 503, "file exists"},
	} {
		if code, body := as(a, tt.user, "/api/v1/namespaces/default/"+tt.path); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s", tt.user.Name, tt.path, code, body)
		}
	}
}

// TestWithoutAnEpochThereIsNoAPI: revisions that may repeat would mislead clients.
func TestWithoutAnEpochThereIsNoAPI(t *testing.T) {
	a := api(t, nil)
	if err := os.WriteFile(Dir(a.cfg), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root := access.User{Name: "root", Groups: []string{access.GroupMasters}}
	if code, body := as(a, root, "/api/v1/pods"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"kind":"Status"`) {
		t.Errorf("%d %s", code, body)
	}
	if err := os.Remove(Dir(a.cfg)); err != nil {
		t.Fatal(err)
	}
	if code, _ := as(a, root, "/api/v1/pods"); code != http.StatusOK {
		t.Error("it does not come back by itself:", code)
	}
}

// TestWhoIsNotRootReadsOnly: an administrator may open the socket to others.
func TestWhoIsNotRootReadsOnly(t *testing.T) {
	a := api(t, nil)
	mux := http.NewServeMux()
	for pattern, h := range a.Routes() {
		mux.Handle(pattern, h)
	}
	for path, want := range map[string]int{
		"/api/v1/namespaces/default/pods/web": http.StatusOK, "/api/v1/secrets": http.StatusForbidden, "/apis": http.StatusOK, "/version": http.StatusOK,
		"/openapi/v3": http.StatusOK, "/api": http.StatusOK, "/v2": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)) // nobody knows who is at the other end
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestTokensCanBeVerifiedOnceTheAPIListens: before, there is no URL for jwks_uri.
func TestTokensCanBeVerifiedOnceTheAPIListens(t *testing.T) {
	for address, want := range map[string]string{"": "", "0.0.0.0:6443": "https://127.0.0.1:6443/openid/v1/jwks"} {
		a := api(t, func(cfg *config.Loaded) { cfg.APIServer.Address = address })
		a.deps.Issuer = tokens.New(tokens.Config{Dir: t.TempDir()})
		mux := http.NewServeMux()
		for pattern, h := range a.Routes() {
			mux.Handle(pattern, h)
		}
		for path, text := range map[string]string{tokens.ConfigurationPath: want, tokens.KeySetPath: `"crv":"P-256"`} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			code := http.StatusNotFound
			if address != "" {
				code = http.StatusOK
			}
			if w.Code != code || address != "" && !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s of %q: %d %s", path, address, w.Code, w.Body)
			}
		}
	}
}

// TestTheDaemonServesItsOwnPathsByTheSameRules: without an epoch, and on the socket as on the listener.
func TestTheDaemonServesItsOwnPathsByTheSameRules(t *testing.T) {
	a := api(t, nil)
	if err := os.WriteFile(Dir(a.cfg), nil, 0o600); err != nil { // no epoch
		t.Fatal(err)
	}
	own := http.NewServeMux()
	for _, pattern := range []string{"GET " + localapi.PodReports(""), "PUT " + localapi.Self("applied"), "GET " + localapi.PodReport("a", "b", "files")} {
		own.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("own " + r.URL.Path)) })
	}
	socket := a.WithOwn(own)
	as := func(h http.Handler, u access.User, method, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(access.WithUser(t.Context(), u), method, path, strings.NewReader("{}")))
		return w.Code
	}
	for _, tt := range []struct {
		method, path      string
		view, edit, admin int
	}{
		{"GET", localapi.PodReports(""), 200, 200, 200},
		{"PUT", localapi.Self("applied"), 403, 403, 200},
		{"GET", localapi.PodReport("a", "b", "files"), 403, 403, 200},
		{"POST", localapi.Self("kubeconfig"), 403, 403, 400}, // the API is off
		{"DELETE", localapi.PodReports(""), 503, 503, 503},
		{"GET", localapi.Base + "/sources", 503, 503, 503},
	} {
		for group, want := range map[string]int{access.GroupView: tt.view, access.GroupEdit: tt.edit, access.GroupAdmin: tt.admin} {
			if got := as(a, access.User{Name: "u", Groups: []string{group}}, tt.method, tt.path); got != want {
				t.Errorf("%s %s %s: %d, want %d", group, tt.method, tt.path, got, want)
			}
		}
		if got := as(socket, access.Root(), tt.method, tt.path); got != tt.view { // nobody knows who is at the other end
			t.Errorf("socket: %s %s: %d, want %d", tt.method, tt.path, got, tt.view)
		}
	}
}

// TestNobodyIsImpersonatedOnTheSocket: kubectl --as must not run as root.
func TestNobodyIsImpersonatedOnTheSocket(t *testing.T) {
	a := api(t, nil)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
	r.Header.Set("Impersonate-User", "alice")
	a.Routes()["/api/"].ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "does not support impersonation") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestWatchesOfOwnPathsAreLimited: one user must not hold any number of them.
func TestWatchesOfOwnPathsAreLimited(t *testing.T) {
	a := api(t, nil)
	own, entered := http.NewServeMux(), make(chan struct{})
	own.HandleFunc("GET "+localapi.PodReports(""), func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})
	a.WithOwn(own)
	ctx, cancel := context.WithCancel(access.WithUser(t.Context(), access.User{Name: "v", Groups: []string{access.GroupView}}))
	watch := func() int {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, localapi.PodReports("")+"?watch=1", nil))
		return w.Code
	}
	done := make(chan int)
	for range 64 {
		go func() { done <- watch() }()
		<-entered
	}
	if code := watch(); code != http.StatusTooManyRequests {
		t.Errorf("one too many: %d", code)
	}
	cancel()
	for range 64 {
		<-done
	}
}
