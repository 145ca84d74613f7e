package hook_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/runner/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestResolve(t *testing.T) {
	c := &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 8081}}}
	get := func(g corev1.HTTPGetAction) *corev1.LifecycleHandler { return &corev1.LifecycleHandler{HTTPGet: &g} }
	for _, tt := range []struct {
		name, ip string
		h        *corev1.LifecycleHandler
		want     string // or a part of the error
	}{
		{"a command", "", &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"a", "b"}}}, "exec a b"},
		{"a sleep", "", &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}, "sleep 3s"},
		{"the pod's address", "10.0.0.1", get(corev1.HTTPGetAction{Path: "/x?y=1", Port: intstr.FromInt(80)}), "GET http://10.0.0.1:80/x?y=1"},
		{"an address of the sixth version", "fd00::1", get(corev1.HTTPGetAction{Scheme: "HTTPS", Port: intstr.FromInt(443)}), "GET https://[fd00::1]:443"},
		{"a host and a named port", "10.0.0.1", get(corev1.HTTPGetAction{Host: "h", Path: "/", Port: intstr.FromString("admin")}), "GET http://h:8081/"},
		{"a port that there is not", "10.0.0.1", get(corev1.HTTPGetAction{Port: intstr.FromString("nope")}), `has no port named "nope"`},
		{"no address", "", get(corev1.HTTPGetAction{Port: intstr.FromInt(80)}), "no address"},
		{"what Kubernetes does not run either", "", &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}, "no supported action"},
	} {
		h, err := hook.Resolve(tt.h, c, tt.ip)
		if err != nil && strings.Contains(err.Error(), tt.want) {
			continue
		}
		if err != nil || h.String() != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, h, err, tt.want)
		}
	}
}

func TestAnyAnswerIsASuccess(t *testing.T) {
	var header http.Header
	var host string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, host = r.Header, r.Host
		w.WriteHeader(http.StatusInternalServerError)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	secure.Config.ErrorLog = nil
	for _, to := range []string{plain.URL, secure.URL, "https" + strings.TrimPrefix(plain.URL, "http")} {
		header = nil
		h := hook.Hook{URL: to, Header: http.Header{"X-A": {"b"}, "Host": {"named"}}}
		if err := hook.Run(t.Context(), h, nil); err != nil || header.Get("X-A") != "b" || host != "named" {
			t.Errorf("%s: %v, header %v, host %q", to, err, header, host)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there any more
	if err := hook.Run(t.Context(), hook.Hook{URL: "http://" + l.Addr().String()}, nil); err == nil {
		t.Error("no answer is a success")
	}
}

// counted serves on an address and counts requests.
func counted(t *testing.T, address string, h http.HandlerFunc) (url string, requests *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, requests
}

// TestRedirectsToOtherHostsAreNotFollowed: a pod answers its own hook, and could otherwise have any server of this machine called, with a
// header of its choice.
func TestRedirectsToOtherHostsAreNotFollowed(t *testing.T) {
	other, called := counted(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	pod, asked := counted(t, "127.0.0.2:0", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/elsewhere":
			http.Redirect(w, r, other+"/shutdown", http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/around":
			http.Redirect(w, r, "/around", http.StatusFound)
		}
	})
	for _, tt := range []struct {
		path     string
		requests int32
		err      string
	}{{"/elsewhere", 1, ""}, {"/here", 2, ""}, {"/around", 10, "stopped after 10 redirects"}} {
		asked.Store(0)
		err := hook.Run(t.Context(), hook.Hook{URL: pod + tt.path, Header: http.Header{"Metadata": {"true"}}}, nil)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.path, err, tt.err)
		}
		if n := asked.Load(); n != tt.requests {
			t.Errorf("%s: %d requests to the pod, want %d", tt.path, n, tt.requests)
		}
	}
	if n := called.Load(); n != 0 {
		t.Errorf("the server of another host was called %d times", n)
	}
}

// TestCredentialsAreNotSentWithoutTLS: a hook by HTTPS is repeated without TLS if the server has none.
func TestCredentialsAreNotSentWithoutTLS(t *testing.T) {
	var got http.Header
	plain, _ := counted(t, "127.0.0.1:0", func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	h := hook.Hook{URL: "https" + strings.TrimPrefix(plain, "http"), Header: http.Header{"Authorization": {"Bearer x"}, "X-A": {"b"}}}
	if err := hook.Run(t.Context(), h, nil); err != nil || got.Get("X-A") != "b" || got.Get("Authorization") != "" {
		t.Errorf("%v, header %v", err, got)
	}
	if h.Header.Get("Authorization") == "" {
		t.Error("the header of the hook was changed")
	}
}

// TestAnUnreadableBodyIsASuccess: the answer has arrived.
func TestAnUnreadableBodyIsASuccess(t *testing.T) {
	short, _ := counted(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("short"))
	})
	if err := hook.Run(t.Context(), hook.Hook{URL: short}, nil); err != nil {
		t.Error(err)
	}
}

func TestRequestsByHTTP2(t *testing.T) {
	asked := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked += r.ProtoMajor }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	if err := hook.Run(t.Context(), hook.Hook{URL: s.URL, HTTP2: true}, nil); err != nil || asked != 2 {
		t.Errorf("%v, asked by HTTP/%d", err, asked)
	}
	get := &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Protocol: new(corev1.HTTPProtocolHTTP2)}
	if h, err := hook.Resolve(&corev1.LifecycleHandler{HTTPGet: get}, &corev1.Container{}, "10.0.0.1"); err != nil || !h.HTTP2 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestCommandsSucceedWithCode0(t *testing.T) {
	answer := func(code int, err error) hook.Exec {
		return func(context.Context, []string) (int, string, error) { return code, "why", err }
	}
	h := hook.Hook{Exec: []string{"x"}}
	if err := hook.Run(t.Context(), h, answer(0, nil)); err != nil {
		t.Error(err)
	}
	if err := hook.Run(t.Context(), h, answer(3, nil)); err == nil || err.Error() != `exit code 3, output "why"` {
		t.Error(err)
	}
	gone := errors.New("gone")
	if err := hook.Run(t.Context(), h, answer(0, gone)); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestASleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := hook.Run(t.Context(), hook.Hook{Sleep: 3 * time.Second}, nil); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := hook.Run(ctx, hook.Hook{Sleep: time.Hour}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
