package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// location is the path of a subresource as client-go makes it.
func (m *machine) location(subresource string, options *corev1.PodExecOptions) *url.URL {
	q, err := scheme.ParameterCodec.EncodeParameters(options, corev1.SchemeGroupVersion)
	if err != nil {
		m.t.Fatal(err)
	}
	u, err := url.Parse(m.url + "/pods/web/" + subresource + "?" + q.Encode())
	if err != nil {
		m.t.Fatal(err)
	}
	return u
}

// executors are the ways in which client-go connects to a process.
func executors(t *testing.T, u *url.URL) map[string]remotecommand.Executor {
	t.Helper()
	config := &rest.Config{Host: u.Host}
	overSPDY, err := remotecommand.NewSPDYExecutor(config, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", u.String())
	if err != nil {
		t.Fatal(err)
	}
	oldWebSocket, err := remotecommand.NewWebSocketExecutorForProtocols(config, "GET", u.String(), "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": overSPDY, "WebSocket": overWebSocket, "WebSocket v4": oldWebSocket}
}

type sizes struct{ left int }

func (s *sizes) Next() *remotecommand.TerminalSize {
	if s.left--; s.left < 0 {
		return nil
	}
	return &remotecommand.TerminalSize{Width: 80, Height: 24}
}

func TestCommandsByTheClientsOfKubectl(t *testing.T) {
	m := newMachine(t, nil)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<12)
	for name, e := range executors(t, m.location("exec", &corev1.PodExecOptions{Stdin: true, Stdout: true, Command: []string{"cat"}})) {
		if name == "WebSocket v4" { // which cannot say that its input has ended
			continue
		}
		var out bytes.Buffer
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: bytes.NewReader(data), Stdout: &out}); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s: %v, %d bytes", name, err, out.Len())
		}
	}
	both := &corev1.PodExecOptions{Stdout: true, Stderr: true, Command: []string{"both", "a b", "&c=d"}}
	for name, e := range executors(t, m.location("exec", both)) {
		var out, errs bytes.Buffer
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
		if code, ok := errors.AsType[exec.CodeExitError](err); !ok || code.Code != 7 {
			t.Errorf("%s: %v", name, err)
		}
		if out.String() != "default/web 1 a b|&c=d" || errs.String() != "error" {
			t.Errorf("%s: %q, %q", name, out.String(), errs.String())
		}
	}
	size := &corev1.PodExecOptions{Container: "app", Stdout: true, TTY: true, Command: []string{"size"}}
	for name, e := range executors(t, m.location("exec", size)) {
		var out bytes.Buffer
		o := remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: &sizes{1}}
		if err := e.StreamWithContext(t.Context(), o); err != nil || out.String() != "80x24 terminal true" {
			t.Errorf("%s: %v, %q", name, err, out.String())
		}
	}
}

func TestAttachIsToTheNamedContainer(t *testing.T) {
	m := newMachine(t, nil)
	for name, e := range executors(t, m.location("attach", &corev1.PodExecOptions{Container: "shell", Stdin: true, Stdout: true})) {
		if name == "WebSocket v4" {
			continue
		}
		var out bytes.Buffer
		if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("typed"), Stdout: &out}); err != nil || out.String() != "container 2: typed" {
			t.Errorf("%s: %v, %q", name, err, out.String())
		}
	}
}

// signaled reports the first write.
type signaled struct{ c chan struct{} }

func (s signaled) Write(b []byte) (int, error) {
	if len(b) > 0 {
		close(s.c)
	}
	return len(b), nil
}

func TestACommandEndsWithItsClient(t *testing.T) {
	m := newMachine(t, nil)
	for name, e := range executors(t, m.location("exec", &corev1.PodExecOptions{Stdout: true, Command: []string{"wait"}})) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			out, done := signaled{make(chan struct{})}, make(chan error, 1)
			go func() { done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out}) }()
			<-out.c
			cancel()
			if err := <-done; err == nil {
				t.Error("no error")
			}
			m.wantEnded("wait")
		})
	}
}

// status returns the code and the Status of an answer.
func status(t *testing.T, res *http.Response) metav1.Status {
	t.Helper()
	defer res.Body.Close()
	s := metav1.Status{}
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil || int(s.Code) != res.StatusCode || s.Kind != "Status" {
		t.Errorf("%d: no Status: %v, %+v", res.StatusCode, err, s)
	}
	return s
}

func TestErrorsBeforeTheUpgradeAreStatus(t *testing.T) {
	for _, c := range []struct {
		name, method, path string
		edit               func(*machine, *Config)
		code               int32
		reason             metav1.StatusReason
		message            string
	}{
		{"no upgrade", "POST", "exec?command=cat&stdout=true", nil, 400, "BadRequest", "unable to upgrade"},
		{"no streams", "POST", "exec?command=cat", nil, 400, "BadRequest", "at least 1 of stdin"},
		{"no command", "POST", "exec?stdout=true", nil, 400, "BadRequest", "no command is given"},
		{"unknown container", "POST", "exec?command=cat&container=nope", nil, 400, "BadRequest", "container nope is not valid for pod web"},
		{"container that waits", "POST", "attach?stdout=true&container=other", nil, 400, "BadRequest", `container "other" of pod "web" is not running`},
		{"nothing can be seen", "POST", "exec?command=cat&stdout=1", func(m *machine, _ *Config) { m.blind = true }, 503, "ServiceUnavailable", "containers cannot be seen"},
		{"ports without upgrade", "POST", "portforward", nil, 400, "BadRequest", "upgrade"},
		{"log of an unknown container", "GET", "log?container=nope", nil, 400, "BadRequest", "container nope is not valid for pod web"},
		{"log options that cannot be", "GET", "log?tailLines=-1&limitBytes=0&sinceSeconds=0", nil, 422, "Invalid", "tailLines"},
		{"log options that are none", "GET", "log?tailLines=x", nil, 400, "BadRequest", "tailLines"},
		{"log that cannot be read", "GET", "log", func(m *machine, _ *Config) {
			m.logs = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, strings.Repeat("disk gone ", 1<<12), 500) }
		}, 500, "InternalError", "disk gone"},
		{"log without a text", "GET", "log", func(m *machine, _ *Config) {
			m.logs = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }
		}, 404, "NotFound", "Not Found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, c.edit)
			r, err := http.NewRequestWithContext(t.Context(), c.method, m.url+"/pods/web/"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			got := status(t, res)
			if got.Code != c.code || got.Reason != c.reason || !strings.Contains(got.Message, c.message) || len(got.Message) > maxText {
				t.Errorf("%+v", got)
			}
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		})
	}
}

func TestTheContainerThatIsMeant(t *testing.T) {
	pod := func(annotation string, containers ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{defaultContainer: annotation}}}
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
		return p
	}
	for _, c := range []struct {
		pod        *corev1.Pod
		name, want string
		err        string
	}{
		{pod("", "a"), "", "a", ""},
		{pod("", "a", "b"), "", "", "a container name must be specified for pod p, choose one of: [i a b e]"},
		{pod("b", "a", "b"), "", "b", ""},
		{pod("b", "a", "b"), "a", "a", ""},
		{pod("gone", "a", "b"), "", "", "choose one of"},
		{pod("gone", "a"), "", "a", ""},
		{pod("", "a"), "i", "i", ""},
		{pod("", "a"), "e", "e", ""},
		{pod("", "a"), "../x", "", "container ../x is not valid for pod p"},
	} {
		got, err := containerOf(c.pod, c.name)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || !apierrors.IsBadRequest(err)) {
			t.Errorf("%q of %s: %q, %v", c.name, names(c.pod), got, err)
		}
	}
}

func TestPortsByTheClientsOfKubectl(t *testing.T) {
	m := newMachine(t, nil)
	port := greeter(t)
	u, err := url.Parse(m.url + "/pods/web/portforward")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: u.Host}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, config)
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u), "SPDY in a WebSocket": tunnel,
	} {
		t.Run(name, func(t *testing.T) {
			stop, ready := make(chan struct{}), make(chan struct{})
			f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- f.ForwardPorts() }()
			<-ready
			ports, err := f.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if got := greet(t, fmt.Sprintf("127.0.0.1:%d", ports[0].Local), fmt.Sprint(i)); got != fmt.Sprintf("hello %d\n", i) {
					t.Errorf("%q", got)
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPortsOverAPlainWebSocket: two channels for each port, which begin with its number.
func TestPortsOverAPlainWebSocket(t *testing.T) {
	m := newMachine(t, nil)
	port := greeter(t)
	ws := m.webSocket(fmt.Sprintf("/pods/web/portforward?ports=%d", port), "v4.channel.k8s.io")
	defer ws.Close()
	if _, err := ws.Write([]byte("\x00you\n")); err != nil {
		t.Fatal(err)
	}
	all := ""
	for !strings.Contains(all, "\x00hello you\n") {
		var b []byte
		if err := websocket.Message.Receive(ws, &b); err != nil {
			t.Fatalf("%q: %v", all, err)
		}
		all += string(b)
	}
	number := string([]byte{byte(port), byte(port >> 8)})
	if !strings.Contains(all, "\x00"+number) || !strings.Contains(all, "\x01"+number) {
		t.Errorf("%q", all)
	}
}

// webSocket connects with the library of the standard protocol.
func (m *machine) webSocket(path string, protocols ...string) *websocket.Conn {
	m.t.Helper()
	ws, err := m.tryWebSocket(path, protocols...)
	if err != nil {
		m.t.Fatal(err)
	}
	return ws
}

func (m *machine) tryWebSocket(path string, protocols ...string) (*websocket.Conn, error) {
	c, err := websocket.NewConfig("ws"+strings.TrimPrefix(m.url, "http")+path, m.url)
	if err != nil {
		m.t.Fatal(err)
	}
	c.Protocol = protocols
	ws, err := websocket.DialConfig(c)
	if err == nil {
		ws.PayloadType = websocket.BinaryFrame
	}
	return ws, err
}

// greeter answers a line and hangs up.
func greeter(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var line []byte
				for b := make([]byte, 1); !slices.Contains(line, '\n'); line = append(line, b[0]) {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
				fmt.Fprintf(c, "hello %s", line)
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

func greet(t *testing.T, address, name string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, name)
	b, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
