package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
)

var (
	podKind    = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	secretKind = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Secret"))
)

// memory is a State.
type memory struct {
	mu          sync.Mutex
	objects     map[Ref]kinds.Object
	computed    map[*kinds.Kind][]kinds.Object
	unseen      map[*kinds.Kind]error
	subscribers map[chan struct{}]bool
}

func newMemory(objects ...kinds.Object) *memory {
	m := &memory{
		objects: map[Ref]kinds.Object{}, computed: map[*kinds.Kind][]kinds.Object{}, unseen: map[*kinds.Kind]error{},
		subscribers: map[chan struct{}]bool{},
	}
	m.put(objects...)
	return m
}

func (m *memory) Objects(context.Context) (map[*kinds.Kind][]kinds.Object, map[*kinds.Kind]error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[*kinds.Kind][]kinds.Object{}
	for ref, o := range m.objects {
		found[ref.Kind] = append(found[ref.Kind], o)
	}
	return found, maps.Clone(m.unseen)
}

func (m *memory) Computed(_ context.Context, k *kinds.Kind) ([]kinds.Object, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	objects, ok := m.computed[k]
	if ok && objects == nil {
		return nil, true, errors.New("no statistics yet")
	}
	return objects, ok, nil
}

func (m *memory) Subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscribers[c] = true
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subscribers, c)
	}
}

func (m *memory) change(how func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	how()
	for c := range m.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func refOf(o kinds.Object) Ref {
	gvks, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	return Ref{Kind: kinds.ByKind(gvks[0]), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (m *memory) put(objects ...kinds.Object) {
	m.change(func() {
		for _, o := range objects {
			m.objects[refOf(o)] = o
		}
	})
}

func (m *memory) remove(o kinds.Object) { m.change(func() { delete(m.objects, refOf(o)) }) }

func (m *memory) watchers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.subscribers)
}

// writer knows which objects are applied, and which are also defined elsewhere, and writes none.
type writer struct{ applied, elsewhere []string }

func (w writer) Definition(r Ref) Definition {
	d := Definition{Applied: slices.Contains(w.applied, r.Name)}
	if slices.Contains(w.elsewhere, r.Name) {
		d.Place = "/m/" + r.Name + ".yaml:1"
	}
	return d
}

func (w writer) Write(context.Context, bool, func() (Change, error)) ([]string, error) {
	return nil, errors.New("nothing can be written")
}

func testPod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{{Name: "main", Image: "image"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func testSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Data: map[string][]byte{"key": []byte("value")}}
}

// pipes is a listener without a network: in a bubble of synctest, what waits for it is idle.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// site serves an API, with the user of the header X-User, and is a client of it.
type site struct {
	t     *testing.T
	state *memory
	pipes *pipes
	http  *http.Server
	// transport has the connections of the clients.
	transport *http.Transport

	mu    sync.Mutex
	api   *Server
	conns map[net.Conn]bool
}

// cut breaks all connections.
func (s *site) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

// serve starts an API. It is stopped at the end of the test, or of its bubble, by stop.
func serveSite(t *testing.T, cfg Config, objects ...kinds.Object) *site {
	t.Helper()
	s := &site{t: t, state: newMemory(objects...), pipes: &pipes{conns: make(chan net.Conn), done: make(chan struct{})}, conns: map[net.Conn]bool{}}
	cfg.State = s.state
	if cfg.Policy == nil {
		cfg.Policy = access.NewPolicy(nil)
	}
	if cfg.Epoch == 0 {
		cfg.Epoch = 5
	}
	s.api = New(cfg)
	s.transport = &http.Transport{DialContext: s.pipes.dial, DisableCompression: true}
	s.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		api := s.api
		s.mu.Unlock()
		api.Handler().ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), userOf(r))))
	})}
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conns[c] = true; state == http.StateClosed || state == http.StateHijacked {
			delete(s.conns, c)
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.pipes) }()
	t.Cleanup(func() {
		s.transport.CloseIdleConnections()
		if err := s.http.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// userOf returns the user NAME/GROUP of a header; without it, root.
func userOf(r *http.Request) access.User {
	name, group, ok := strings.Cut(r.Header.Get("X-User"), "/")
	switch {
	case name == "":
		return access.Root()
	case !ok:
		return access.User{Name: name}
	}
	return access.User{Name: name, Groups: []string{group, access.GroupAuthenticated}}
}

func (s *site) do(user, method, target string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://api"+target, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-User", user)
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

// body returns the code and body of an answer.
func (s *site) body(user, method, target string) (int, string) {
	s.t.Helper()
	answer := s.do(user, method, target)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// list returns the names in a list, and its version.
func (s *site) list(user, target string) (names []string, version string) {
	s.t.Helper()
	code, body := s.body(user, "GET", target)
	var found metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(body), &found); err != nil || code != http.StatusOK {
		s.t.Fatalf("%s: %d %v %s", target, code, err, body)
	}
	for _, o := range found.Items {
		names = append(names, o.Name)
	}
	return names, found.ResourceVersion
}

// status returns an error as CODE REASON MESSAGE.
func (s *site) status(user, method, target string) string {
	s.t.Helper()
	code, body := s.body(user, method, target)
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" {
		s.t.Fatalf("%s: %d %v %s", target, code, err, body)
	}
	if int(status.Code) != code {
		s.t.Errorf("%s: code %d in an answer %d", target, status.Code, code)
	}
	return fmt.Sprintf("%d %s %s", code, status.Reason, status.Message)
}

// watched is a watch of a client.
type watched struct {
	t       *testing.T
	body    io.ReadCloser
	decoder *json.Decoder
}

func (s *site) watch(user, path string, query url.Values) *watched {
	s.t.Helper()
	query.Set("watch", "true")
	answer := s.do(user, "GET", path+"?"+query.Encode()) //nolint:bodyclose // close does it
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(answer.Body)
		s.t.Fatalf("watch: %d %s", answer.StatusCode, body)
	}
	return &watched{s.t, answer.Body, json.NewDecoder(answer.Body)}
}

func (w *watched) close() { _ = w.body.Close() }

// next returns an event as TYPE NAME@VERSION, without the epoch; or END.
func (w *watched) next() string {
	w.t.Helper()
	var e struct {
		Type   string
		Object struct {
			metav1.PartialObjectMetadata
			Code   int
			Reason string
		}
	}
	if err := w.decoder.Decode(&e); errors.Is(err, io.EOF) {
		return "END"
	} else if err != nil {
		return "BROKEN " + err.Error()
	}
	if e.Object.Kind == "Status" {
		return fmt.Sprintf("%s %d %s", e.Type, e.Object.Code, e.Object.Reason)
	}
	var version uint64
	if _, err := fmt.Sscan(e.Object.ResourceVersion, &version); err != nil {
		w.t.Errorf("version %q: %v", e.Object.ResourceVersion, err)
	}
	text := fmt.Sprintf("%s %s@%d", e.Type, e.Object.Name, uint32(version))
	if len(e.Object.Annotations) > 0 {
		text += " " + fmt.Sprint(e.Object.Annotations)
	}
	return text
}

func (w *watched) expect(want ...string) {
	w.t.Helper()
	for _, one := range want {
		if got := w.next(); got != one {
			w.t.Errorf("event %q, want %q", got, one)
		}
	}
}

func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

// sync makes the API compare.
func (s *site) sync() {
	s.t.Helper()
	if _, _, err := s.api.log.List(s.t.Context(), podKind); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) request(user string) *http.Request {
	r, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://api/", http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-User", user)
	return r
}

func options(t *testing.T, query string, k *kinds.Kind) *request.ListOptions {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	o, err := request.ParseListOptions(q, k)
	if err != nil {
		t.Fatal(err)
	}
	return &o
}
