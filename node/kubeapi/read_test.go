package kubeapi

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/request"
)

var podMetrics = kinds.ByKind(metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"))

func shop() []kinds.Object {
	return []kinds.Object{
		testPod("shop", "web", "web"), testPod("shop", "db", "db"), testPod("other", "web", "web"), testSecret("mine"), testSecret("of-file"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}},
	}
}

func TestList(t *testing.T) {
	s := serveSite(t, Config{Writer: writer{applied: []string{"mine"}}}, shop()...)
	s.state.computed[podMetrics] = []kinds.Object{
		&metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		&metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}},
	}
	for _, c := range []struct{ user, target, want string }{
		{"", "/api/v1/pods", "web db web"}, // other/web first
		{"", "/api/v1/pods?limit=1", "web db web"},
		{"", "/api/v1/namespaces/shop/pods", "db web"},
		{"", "/api/v1/namespaces/none/pods", ""},
		{"", "/api/v1/pods?labelSelector=app+notin+(web)", "db"},
		{"", "/api/v1/pods?fieldSelector=metadata.namespace%3Dshop,metadata.name!%3Ddb", "web"},
		{"", "/api/v1/pods?fieldSelector=spec.nodeName%3Delsewhere", ""},
		{"", "/api/v1/pods?resourceVersion=0", "web db web"},
		{"", "/api/v1/pods?resourceVersion=1&resourceVersionMatch=NotOlderThan", "web db web"},
		{"", "/api/v1/pods?resourceVersion=" + revision(1) + "&resourceVersionMatch=Exact", "web db web"},
		{"", "/api/v1/nodes", "here"},
		{"", "/api/v1/configmaps", ""},
		{"", "/api/v1/replicationcontrollers", ""},
		{"", "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", "web"},
		{"", "/api/v1/secrets", "mine of-file"},
		{"ann/monopod:edit", "/api/v1/secrets", "mine"},
	} {
		names, version := s.list(c.user, c.target)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.target, got, c.want)
		}
		if version != revision(1) {
			t.Errorf("%s: version %s", c.target, version)
		}
	}
	page := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`))
	for target, want := range map[string]string{
		"/api/v1/pods?resourceVersion=" + revision(2):                        "504 Timeout Timeout: Too large resource version: 21474836482, current: 21474836481",
		"/api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact":          "410 Expired resource version 1 is too old; the current one is 21474836481",
		"/api/v1/pods?resourceVersionMatch=Exact":                            "422 Invalid ",
		"/api/v1/pods?continue=abc":                                          "400 BadRequest invalid continue token: continue key is not valid",
		"/api/v1/pods?continue=e30":                                          "400 BadRequest invalid continue token: continue key is not valid",
		"/api/v1/pods?continue=" + page:                                      "410 Expired this API returns lists in one piece",
		"/api/v1/pods?resourceVersion=-1":                                    "400 BadRequest invalid resourceVersion",
		"/api/v1/pods?resourceVersion=%2B1":                                  "400 BadRequest invalid resourceVersion",
		"/api/v1/pods?resourceVersion=" + strings.Repeat("9", 400):           "400 BadRequest invalid resourceVersion \"9999999999999999999999999999999999999999\"",
		"/api/v1/pods?labelSelector=%3D":                                     "400 BadRequest invalid labelSelector",
		"/api/v1/widgets":                                                    "404 NotFound the server could not find the requested resource",
		"/other":                                                             "404 NotFound the server could not find the requested resource",
		"/api/v1/namespaces/shop/pods/none":                                  "404 NotFound pods \"none\" not found",
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/none":             "404 NotFound pods.metrics.k8s.io \"none\" not found",
		"/api/v1/namespaces/shop/pods/a%2Fb":                                 "400 BadRequest invalid name in the path",
		"/api/v1/namespaces/shop/pods/web?resourceVersion=" + revision(1000): "504 Timeout Timeout: Too large",
	} {
		if got := s.status("", "GET", target); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	_, body := s.body("", "GET", "/api/v1/pods?resourceVersion="+revision(9))
	if !strings.Contains(body, `"reason":"ResourceVersionTooLarge"`) || strings.Contains(body, "retryAfter") {
		t.Errorf("client-go would not list again at once: %s", body)
	}
}

func TestGet(t *testing.T) {
	s := serveSite(t, Config{Writer: writer{applied: []string{"mine"}}}, shop()...)
	for _, target := range []string{"/api/v1/namespaces/shop/pods/web", "/api/v1/namespaces/shop/pods/web/status", "/api/v1/namespaces/shop/pods/web?resourceVersion=0"} {
		code, body := s.body("", "GET", target)
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(body), &pod); err != nil || code != 200 || pod.Kind != "Pod" || pod.APIVersion != "v1" || pod.Name != "web" || pod.ResourceVersion != revision(1) {
			t.Errorf("%s: %d %v %s", target, code, err, body)
		}
	}
	if code, body := s.body("", "HEAD", "/api/v1/namespaces/shop/pods/web"); code != 200 || body != "" {
		t.Errorf("HEAD: %d %s", code, body)
	}
	if code, body := s.body("ann/monopod:edit", "GET", "/api/v1/namespaces/shop/secrets/mine"); code != 200 || !strings.Contains(body, "dmFsdWU=") {
		t.Errorf("an applied secret: %d %s", code, body)
	}
	if got := s.status("ann/monopod:edit", "GET", "/api/v1/namespaces/shop/secrets/of-file"); !strings.HasPrefix(got, "403 Forbidden") {
		t.Errorf("a secret of a file: %s", got)
	}
	if answer := s.do("", "GET", "/api/v1/pods"); answer.Header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", answer.Header)
	} else {
		answer.Body.Close()
	}
}

// TestAListEndsInTime: timeoutSeconds bounds a list, too.
func TestAListEndsInTime(t *testing.T) {
	state := newMemory(shop()...)
	s := New(Config{State: slow{state}, Policy: access.NewPolicy(nil)})
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequestWithContext(access.WithUser(t.Context(), access.Root()), http.MethodGet, "/apis/metrics.k8s.io/v1beta1/nodes?timeoutSeconds=2", nil)
		w := httptest.NewRecorder()
		began := time.Now()
		s.Handler().ServeHTTP(w, r)
		if took := time.Since(began); w.Code != http.StatusGatewayTimeout || took != 2*time.Second {
			t.Errorf("%d after %v: %s", w.Code, took, w.Body)
		}
	})
}

// slow is a state that is not ready before its context ends.
type slow struct{ *memory }

func (slow) Computed(ctx context.Context, _ *kinds.Kind) ([]kinds.Object, bool, error) {
	<-ctx.Done()
	return nil, true, ctx.Err()
}

func TestWhatCannotBeSeen(t *testing.T) {
	s := serveSite(t, Config{}, shop()...)
	s.state.unseen[podKind] = errors.New("the runtime does not answer")
	s.state.computed[podMetrics] = nil
	if got := s.status("", "GET", "/api/v1/pods"); got != "503 ServiceUnavailable pods are not available yet: the runtime does not answer" {
		t.Error(got)
	}
	if got := s.status("", "GET", "/apis/metrics.k8s.io/v1beta1/pods"); got != "503 ServiceUnavailable no statistics yet" {
		t.Error(got)
	}
	if names, _ := s.list("", "/api/v1/nodes"); len(names) != 1 {
		t.Errorf("nodes: %v", names)
	}
	code, body := s.body("", "GET", "/readyz")
	if code != 500 || body != "[+]ping ok\n[-]state failed: pods unavailable; see the monopod log\nreadyz check failed\n" {
		t.Errorf("readyz: %d %s", code, body)
	}
}

func TestForbidden(t *testing.T) {
	s := serveSite(t, Config{}, shop()...)
	for _, c := range []struct{ user, method, target, want string }{
		{"eve/none", "GET", "/api/v1/namespaces/default/pods/x", `pods "x" is forbidden: User "eve" cannot get resource "pods" in API group "" in the namespace "default"`},
		{"eve/none", "GET", "/api/v1/pods", `pods is forbidden: User "eve" cannot list resource "pods" in API group "" at the cluster scope`},
		{"eve/none", "GET", "/api/v1/pods?watch=1", `pods is forbidden: User "eve" cannot watch resource "pods" in API group "" at the cluster scope`},
		{"eve/none", "GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", `pods "x" is forbidden: User "eve" cannot list resource "pods" in API group "" at the cluster scope`},
		{"eve/none", "GET", "/api/v1/namespaces/n/pods/x/log", `pods "x" is forbidden: User "eve" cannot get resource "pods/log" in API group "" in the namespace "n"`},
		{"eve/none", "GET", "/api/v1/namespaces/n", `namespaces "n" is forbidden: User "eve" cannot get resource "namespaces" in API group "" in the namespace "n"`},
		{"eve/none", "DELETE", "/apis/apps/v1/namespaces/n/deployments", `deployments.apps is forbidden: User "eve" cannot deletecollection resource "deployments" in API group "apps" in the namespace "n"`},
		{"ann/monopod:view", "GET", "/api/v1/namespaces/n/pods/x/exec", `pods "x" is forbidden: User "ann" cannot create resource "pods/exec" in API group "" in the namespace "n"`},
		{"ann/monopod:view", "GET", "/api/v1/secrets", `secrets is forbidden: User "ann" cannot list resource "secrets" in API group "" at the cluster scope`},
		{"eve", "GET", "/version", `forbidden: User "eve" cannot get path "/version"`},
		{"eve", "GET", "/nothing", `forbidden: User "eve" cannot get path "/nothing"`},
	} {
		if got := s.status(c.user, c.method, c.target); got != "403 Forbidden "+c.want {
			t.Errorf("%s %s: %s", c.method, c.target, got)
		}
	}
	if code, _ := s.body("ann/monopod:view", "GET", "/api/v1/pods"); code != 200 {
		t.Errorf("a viewer cannot list pods: %d", code)
	}
	reasons := serveSite(t, Config{Policy: refuse{}})
	if got := reasons.status("", "GET", "/api/v1/nodes"); !strings.HasSuffix(got, "at the cluster scope: it is night") {
		t.Errorf("reason: %s", got)
	}
}

// refuse is a policy.
type refuse struct{}

func (refuse) Allows(access.Attributes) (bool, string) { return false, "it is night" }

func TestPathsWithoutObjects(t *testing.T) {
	s := serveSite(t, Config{Version: "v9"})
	for _, c := range []struct {
		method, target string
		code           int
		body           string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/livez", 200, "ok"},
		{"GET", "/readyz", 200, "ok"},
		{"HEAD", "/readyz", 200, ""},
		{"GET", "/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"},
		{"GET", "/readyz?verbose=true", 200, "[+]ping ok\n[+]state ok\nreadyz check passed\n"},
		{"GET", "/readyz?verbose&exclude=ping", 200, "[+]state ok\nreadyz check passed\n"},
		{"GET", "/readyz/state", 200, "ok"},
		{"GET", "/livez/ping/", 200, "ok"},
		{"GET", "/livez/state", 404, ""},
		{"GET", "/readyz/etcd", 404, ""},
		{"GET", "/version/x", 404, ""},
		{"GET", "/apis/none", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/metrics", 404, ""},
		{"POST", "/healthz", 405, ""},
		{"DELETE", "/version", 405, ""},
	} {
		code, body := s.body("ann/other", c.method, c.target)
		if path, _, _ := strings.Cut(c.target, "?"); !s.api.Serves(path) {
			if code != 403 && code != 404 { // rights are checked first
				t.Errorf("%s %s: %d %s", c.method, c.target, code, body)
			}
		} else if code != c.code || c.body != "" && body != c.body {
			t.Errorf("%s %s: %d %s", c.method, c.target, code, body)
		}
	}
	for path, want := range map[string]bool{
		"/api": true, "/apis/apps/v1": true, "/openapi/v3": true, "/version": true, "/livez": true, "/apix": false, "/": false, "/v1/pods": false, "/exec/a/b/c": false,
	} {
		if s.api.Serves(path) != want {
			t.Errorf("%s is served: %v", path, !want)
		}
	}
}

// TestNoCustomResourcesAreListed: kubectl asks for them before it creates a review.
func TestNoCustomResourcesAreListed(t *testing.T) {
	s := serveSite(t, Config{}, shop()...)
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if code, body := s.body("ann/other", "GET", path+"?limit=500"); code != 200 || !strings.HasPrefix(body, `{"kind":"CustomResourceDefinitionList"`) || !strings.Contains(body, `"items":[]`) {
		t.Errorf("%d %s", code, body)
	}
	for _, c := range [][2]string{{"POST", path}, {"DELETE", path}, {"GET", path + "?watch=1"}, {"GET", path + "/a"}, {"GET", path + "/"}} {
		if got := s.status("", c[0], c[1]); !strings.HasPrefix(got, "404 NotFound") {
			t.Errorf("%s %s: %s", c[0], c[1], got)
		}
	}
}

func TestVersion(t *testing.T) {
	s := serveSite(t, Config{Version: "v9"})
	if code, body := s.body("ann/other", "GET", "/version"); code != 200 || !strings.Contains(body, `"gitCommit":"v9"`) {
		t.Errorf("%d %s", code, body)
	}
}

func TestWritesNeedAWriter(t *testing.T) {
	s := serveSite(t, Config{}, shop()...)
	for _, c := range []struct{ method, target string }{
		{"DELETE", "/api/v1/namespaces/shop/pods/web"}, {"POST", "/api/v1/pods"}, {"PUT", "/api/v1/namespaces/shop/pods"},
	} {
		if got := s.status("", c.method, c.target); !strings.HasPrefix(got, "405 MethodNotAllowed") {
			t.Errorf("%s %s: %s", c.method, c.target, got)
		}
	}
}

// broken panics.
type broken struct{ *memory }

func (b broken) Computed(context.Context, *kinds.Kind) ([]kinds.Object, bool, error) { panic("a bug") }

func TestPanicsAreAnswered(t *testing.T) {
	api := New(Config{State: broken{newMemory()}, Policy: access.NewPolicy(nil), Epoch: 1})
	r := httptest.NewRequest(http.MethodGet, "/apis/metrics.k8s.io/v1beta1/nodes", http.NoBody)
	r = r.WithContext(access.WithUser(r.Context(), access.Root()))
	w := httptest.NewRecorder()
	api.Handler().ServeHTTP(w, r)
	if w.Code != 500 || strings.Contains(w.Body.String(), "a bug,") || !strings.Contains(w.Body.String(), `"reason":"InternalError"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	defer func() {
		if recover() != http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this, too
			t.Error("what was begun looks complete")
		}
	}()
	a := &answer{ResponseWriter: httptest.NewRecorder()}
	fmt.Fprint(a, "half")
	func() {
		defer api.recovered(a, r)
		panic("late")
	}()
}

func TestAnswerIsWhatHandlersNeed(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := &answer{ResponseWriter: w}
		var _ http.Flusher = a
		var hijacker http.Hijacker = a
		conn, _, err := hijacker.Hijack()
		if err != nil || !a.begun {
			t.Errorf("hijack: %v", err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello\n")
		conn.Close()
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	answer, err := http.Get(server.URL) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); answer.StatusCode != 200 || line != "hello\n" {
		t.Errorf("%d %q %v", answer.StatusCode, line, err)
	}
}

func TestEachSubresourceHasItsHandler(t *testing.T) {
	for _, k := range kinds.All() {
		for _, sub := range k.Subresources {
			req := &request.Request{Kind: k, Subresource: sub.Name}
			reads := slices.Contains(sub.Verbs, "get") && !connects(req)
			if reads && !whole(req) && !direct(req) && sub.Name != "scale" {
				t.Errorf("nobody reads %s of %s", sub.Name, k.Kind)
			}
		}
	}
}

func BenchmarkList100Pods(b *testing.B) {
	state := newMemory()
	for i := range 100 {
		pod := testPod("shop", fmt.Sprintf("pod-%d", i), "web")
		pod.Spec.Containers[0].Env = make([]corev1.EnvVar, 20)
		pod.Status.ContainerStatuses = make([]corev1.ContainerStatus, 2)
		state.put(pod)
	}
	api := New(Config{State: state, Policy: access.NewPolicy(nil), Epoch: 1})
	for name, accept := range map[string]string{
		"table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf",
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?limit=500", http.NoBody)
			r.Header.Set("Accept", accept)
			r = r.WithContext(access.WithUser(r.Context(), access.Root()))
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				if api.Handler().ServeHTTP(w, r); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

// BenchmarkFiftyWatches is what a change of one of 1,000 pods costs that 50 clients have listed and watch.
func BenchmarkFiftyWatches(b *testing.B) {
	state := newMemory()
	for i := range 1000 {
		state.put(testPod("shop", fmt.Sprintf("pod-%d", i), "web"))
	}
	api := New(Config{State: state, Policy: access.NewPolicy(nil), Epoch: 1})
	ctx, cancel := context.WithCancel(access.WithUser(b.Context(), access.Root()))
	var clients sync.WaitGroup
	var seen atomic.Int64
	for range 50 {
		clients.Go(func() {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", http.NoBody)
			api.Handler().ServeHTTP(counter{httptest.NewRecorder(), &seen}, r.WithContext(ctx))
		})
	}
	wait := func(events int64) {
		for began := time.Now(); seen.Load() < events; runtime.Gosched() {
			if time.Since(began) > 30*time.Second {
				b.Fatalf("%d events, not %d", seen.Load(), events)
			}
		}
	}
	wait(50 * 1000)
	for n := 0; b.Loop(); n++ {
		state.put(testPod("shop", "pod-7", fmt.Sprintf("web-%d", n)))
		wait(50 * (1001 + int64(n)))
	}
	cancel()
	clients.Wait()
}

// counter counts the events of a watch, each of which is written at once.
type counter struct {
	http.ResponseWriter
	seen *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	c.seen.Add(1)
	return len(b), nil
}

// FlushError is what http.ResponseController calls.
func (c counter) FlushError() error { return nil }

// SetWriteDeadline is too.
func (c counter) SetWriteDeadline(time.Time) error { return nil }

// TestSecretsThatAFileOverridesAreHidden: a client may have created a Secret before the file or URL that defines it was read.
func TestSecretsThatAFileOverridesAreHidden(t *testing.T) {
	s := serveSite(t, Config{Writer: writer{applied: []string{"mine", "of-file"}, elsewhere: []string{"of-file"}}}, shop()...)
	if names, _ := s.list("ann/monopod:edit", "/api/v1/secrets"); strings.Join(names, " ") != "mine" {
		t.Errorf("edit lists %v", names)
	}
	if got := s.status("ann/monopod:edit", "GET", "/api/v1/namespaces/shop/secrets/of-file"); !strings.HasPrefix(got, "403 Forbidden") {
		t.Error(got)
	}
	if code, _ := s.body("", "GET", "/api/v1/namespaces/shop/secrets/of-file"); code != http.StatusOK {
		t.Errorf("root gets %d", code)
	}
}

func TestVisible(t *testing.T) {
	p, w := access.NewPolicy(nil), writer{applied: []string{"mine"}}
	for _, tt := range []struct {
		group string
		o     metav1.Object
		want  bool
	}{
		{access.GroupView, testPod("shop", "web", "web"), true},
		{access.GroupView, testSecret("mine"), false},
		{access.GroupEdit, testSecret("mine"), true},
		{access.GroupEdit, testSecret("of-file"), false},
		{access.GroupMasters, testSecret("of-file"), true},
	} {
		if got := Visible(p, w, access.User{Name: "u", Groups: []string{tt.group}}, tt.o); got != tt.want {
			t.Errorf("%s sees %s: %v", tt.group, tt.o.GetName(), got)
		}
	}
}
