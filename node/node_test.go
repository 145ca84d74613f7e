package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is Pods, Logs and Inputs in memory.
type machine struct {
	mu      sync.Mutex
	views   []PodView
	blind   error
	readers map[chan struct{}]bool
	// queries are the log queries; readLog answers them.
	queries []LogQuery
	readLog func(ctx context.Context, q LogQuery, w io.Writer) error
	inputs  []model.Input
	applier Applier
	events  Events
	// revisions may be nil
	revisions Revisions
	whys      Whys
}

func (m *machine) Pods() ([]PodView, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.views), m.blind
}

func (m *machine) Subscribe() (<-chan struct{}, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	if m.readers == nil {
		m.readers = map[chan struct{}]bool{}
	}
	m.readers[c] = true
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.readers, c)
	}
}

// subscriptions waits until that many are open.
func (m *machine) subscriptions(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		m.mu.Lock()
		have := len(m.readers)
		m.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d subscriptions, want %d", have, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func (m *machine) set(views ...PodView) { m.see(nil, views...) }

// see changes the known pods, and the error about them.
func (m *machine) see(blind error, views ...PodView) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views, m.blind = views, blind
	for c := range m.readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (m *machine) ReadLog(ctx context.Context, q LogQuery, w io.Writer) error {
	m.mu.Lock()
	m.queries = append(m.queries, q)
	f := m.readLog
	m.mu.Unlock()
	return f(ctx, q, w)
}

func (m *machine) Inputs() []model.Input { return m.inputs }

func (m *machine) server() *Server {
	var s *Server
	s = NewServer(Config{Pods: m, Logs: m, Inputs: m, Whys: m.whys, Events: m.events, Applier: m.applier, Revisions: m.revisions, Settings: json.RawMessage(`{"config":{}}`), Version: "v1.2.3", Log: slog.New(slog.DiscardHandler), Routes: map[string]http.Handler{
		"/more/": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("more " + r.URL.Path)) }),
		"GET /api/v1/namespaces/{namespace}/pods/{name}/log": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as the Kubernetes API does
			s.serveLog(w, r, "", func(e *apierrors.StatusError) { s.fail(w, e) })
		}),
	}})
	return s
}

// view is a pod with one status per container: "a running", "b waiting ImagePullBackOff", "c ended", "d crashed".
func view(ns, name string, containers ...string) PodView {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: "uid-1"}}
	ended := &corev1.ContainerStateTerminated{ExitCode: 1, ContainerID: "containerd://old"}
	for _, c := range containers {
		f := strings.Fields(c)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: f[0]})
		st := corev1.ContainerStatus{Name: f[0], ContainerID: "containerd://now"}
		switch f[1] {
		case "running":
			st.State.Running = &corev1.ContainerStateRunning{}
		case "rerunning":
			st.State.Running = &corev1.ContainerStateRunning{}
			st.LastTerminationState.Terminated = ended
		case "waiting":
			st.State.Waiting = &corev1.ContainerStateWaiting{Reason: strings.Join(f[2:], " ")}
			st.ContainerID = ""
		case "ended":
			st.State.Terminated = ended
		case "crashed": // waits for its restart
			st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			st.LastTerminationState.Terminated = ended
			st.ContainerID = "containerd://old"
		case "prepared": // the next instance is there and does not run yet
			st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
			st.LastTerminationState.Terminated = ended
		case "unknown":
			continue
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, st)
	}
	return PodView{Pod: p, Origin: manifests.Origin{Source: "file", File: "/m/" + name + ".yaml", Line: 3}}
}

// ask makes a request without a network.
func ask(t *testing.T, s *Server, method, target string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(asRoot(t), method, target, nil))
	return w.Code, w.Body.String()
}

func TestPodsAreAListByNamespaceAndName(t *testing.T) {
	m := &machine{}
	m.set(view("b", "x"), view("a", "z"), view("a", "y"))
	for target, want := range map[string][]string{
		"/apis/monopod.dev/v1alpha1/podreports":                                              {"a/y", "a/z", "b/x"},
		"/apis/monopod.dev/v1alpha1/namespaces/a/podreports":                                 {"a/y", "a/z"},
		"/apis/monopod.dev/v1alpha1/namespaces/a/podreports?fieldSelector=metadata.name%3Dz": {"a/z"},
		"/apis/monopod.dev/v1alpha1/namespaces/none/podreports":                              {},
	} {
		code, body := ask(t, m.server(), http.MethodGet, target)
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK || list.Kind != "PodReportList" || list.APIVersion != "monopod.dev/v1alpha1" {
			t.Errorf("%s: %d %v %s", target, code, err, body)
		}
		got := []string{}
		for _, p := range list.Items {
			got = append(got, p.Namespace+"/"+p.Name)
			if p.Kind != "PodReport" || p.APIVersion != "monopod.dev/v1alpha1" {
				t.Errorf("%s: item without kind", target)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", target, diff)
		}
		if !strings.Contains(body, `"items":[`) {
			t.Errorf("%s: items is not a list: %s", target, body)
		}
	}
}

func TestAnnotationsOfTheAPIAreAddedToACopy(t *testing.T) {
	v := view("a", "x")
	v.Why, v.NextTry = "because", time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	v.Pod.Annotations = map[string]string{"mine": "1", AnnotationWhy: "forged"}
	m := &machine{}
	m.set(v)
	_, body := ask(t, m.server(), http.MethodGet, "/apis/monopod.dev/v1alpha1/namespaces/a/podreports/x")
	var p corev1.Pod
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"mine": "1", AnnotationSource: "/m/x.yaml:3", AnnotationWhy: "because", AnnotationNextTry: "2026-01-02T02:04:05Z"}
	if diff := cmp.Diff(want, p.Annotations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(v.Pod.Annotations) != 2 || v.Pod.Annotations[AnnotationWhy] != "forged" {
		t.Errorf("the pool's pod was changed: %v", v.Pod.Annotations)
	}
	v.Why, v.NextTry, v.Origin.Line = "", time.Time{}, 0
	if got := v.object().Annotations; !cmp.Equal(got, map[string]string{"mine": "1", AnnotationSource: "/m/x.yaml"}) {
		t.Errorf("without reason: %v", got)
	}
}

func TestErrorsAreStatusObjects(t *testing.T) {
	m := &machine{}
	m.set(view("a", "x", "c running"))
	for _, c := range []struct {
		method, target string
		code           int
		message        string
	}{
		{"GET", "/apis/monopod.dev/v1alpha1/namespaces/a/podreports/nope", 404, `pods "nope" not found`},
		{"GET", "/apis/monopod.dev/v1alpha1/namespaces/other/podreports/x", 404, `pods "x" not found`},
		{"GET", "/v2/pods", 404, "no such path: /v2/pods"},
		{"GET", "/api/v1/namespaces/a/pods/nope/log", 404, `pod "nope" does not exist`},
		{"POST", "/apis/monopod.dev/v1alpha1/podreports", 405, "the API has no POST for /apis/monopod.dev/v1alpha1/podreports"},
		{"GET", "/v1/pods", 404, "this command is older than the running monopod, v1.2.3"},
	} {
		code, body := ask(t, m.server(), c.method, c.target)
		var s metav1.Status
		if err := json.Unmarshal([]byte(body), &s); err != nil || s.Kind != "Status" || s.Status != "Failure" || int(s.Code) != code {
			t.Errorf("%s: %v %s", c.target, err, body)
		}
		if code != c.code || !strings.Contains(s.Message, c.message) {
			t.Errorf("%s: %d %s", c.target, code, s.Message)
		}
	}
}

func TestTheSmallEndpoints(t *testing.T) {
	m := &machine{inputs: []model.Input{{Source: "file", Input: "/m/x.yaml", State: "Refused", Errors: []string{"bad"}}}}
	for target, want := range map[string]string{
		"/more/path": "more /more/path",
		"/apis/monopod.dev/v1alpha1/agents/self/config":  `{"config":{}}` + "\n",
		"/apis/monopod.dev/v1alpha1/agents/self/sources": `[{"source":"file","input":"/m/x.yaml","state":"Refused","errors":["bad"],"since":"0001-01-01T00:00:00Z"}]` + "\n",
	} {
		if code, body := ask(t, m.server(), http.MethodGet, target); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %s", target, code, body)
		}
	}
}

func TestChangesAreAddedModifiedAndDeleted(t *testing.T) {
	known := map[manifests.Key]corev1.Pod{}
	step := func(what string, want []string, views ...PodView) {
		t.Helper()
		got := []string{}
		for _, e := range changes(known, selectPods(views, podFilter{})) {
			got = append(got, e.Type+" "+e.Object.Object.(*corev1.Pod).Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	x, y := view("a", "x"), view("a", "y")
	step("all are added first", []string{"ADDED x", "ADDED y"}, x, y)
	step("nothing has changed", []string{}, x, y)
	x2 := view("a", "x")
	x2.Why = "trouble"
	step("a reason is a change", []string{"MODIFIED x"}, x2, y)
	step("one is gone", []string{"DELETED y"}, x2)
	x3 := view("a", "x")
	x3.Pod.UID = "uid-2"
	step("a pod with another uid is another pod", []string{"ADDED x", "DELETED x"}, x3)
	step("all are gone", []string{"DELETED x"})
}

func TestWhileNotAllCanBeSeenNothingIsSaidToBeAbsent(t *testing.T) {
	m := &machine{}
	m.see(errors.New(`no "containerd"`), view("a", "x", "c running"))
	s := m.server()
	for target, want := range map[string]int{
		"/apis/monopod.dev/v1alpha1/podreports": 200, "/apis/monopod.dev/v1alpha1/namespaces/other/podreports": 503, "/apis/monopod.dev/v1alpha1/namespaces/a/podreports/x": 200, "/apis/monopod.dev/v1alpha1/namespaces/a/podreports/y": 503, "/api/v1/namespaces/a/pods/y/log": 503,
	} {
		code, body := ask(t, s, http.MethodGet, target)
		if code != want || want == 503 && !strings.Contains(body, "containerd") {
			t.Errorf("%s: %d %s", target, code, body)
		}
	}
	c, _ := serve(t, m)
	var warnings []string
	c.OnWarning = func(text string) { warnings = append(warnings, text) }
	if list, err := c.Pods(t.Context(), ""); err != nil || len(list.Items) != 1 || !slices.Equal(warnings, []string{`no "containerd"`}) {
		t.Errorf("%v %v %q", list, err, warnings)
	}
	if _, err := c.Pods(t.Context(), "other"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("an empty list: %v", err)
	}
	m.set(view("a", "x"))
	if _, err := c.Pods(t.Context(), "other"); err != nil || len(warnings) != 1 {
		t.Errorf("%v %q", err, warnings)
	}
}

func TestAWatchDoesNotTakeBlindnessForDeletion(t *testing.T) {
	m := &machine{}
	m.set(view("a", "x"))
	c, _ := serve(t, m)
	events := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Watch(ctx, "", "", func(e localclient.PodEvent) error { events <- e.Type + " " + e.Object.Name; return nil })
	}()
	next := func(want string) {
		t.Helper()
		if got := <-events; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	next("ADDED x")
	m.see(errors.New("no containerd"), view("a", "y"))
	next("ADDED y")
	m.set(view("a", "y"))
	next("DELETED x")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnswersWaitForAStartingDaemon(t *testing.T) {
	m := &machine{}
	m.see(ErrStarting)
	answer := make(chan string, 1)
	go func() {
		_, body := ask(t, m.server(), http.MethodGet, "/apis/monopod.dev/v1alpha1/namespaces/a/podreports/x")
		answer <- body
	}()
	m.subscriptions(t, 1)
	m.see(ErrStarting, view("a", "other"))
	m.set(view("a", "x"))
	if got := <-answer; !strings.Contains(got, `"name":"x"`) {
		t.Errorf("answer: %s", got)
	}
}

// TestSharedPathsAreHandedOverBeforeTheServerRuns: another listener serves them, too, and may have a request before the socket has one.
func TestSharedPathsAreHandedOverBeforeTheServerRuns(t *testing.T) {
	var own *http.ServeMux
	s := NewServer(Config{Pods: &machine{}, Log: slog.New(slog.DiscardHandler), Shared: func(mux *http.ServeMux) http.Handler {
		own = mux
		return mux
	}})
	if own == nil {
		t.Fatal("the paths are not known before Run is called")
	}
	r := httptest.NewRequest(http.MethodGet, localapi.PodReports(""), nil)
	for name, h := range map[string]http.Handler{"socket": s.Handler(), "other listener": own} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
