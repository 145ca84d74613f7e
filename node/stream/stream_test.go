package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"monopod/internal/streams"
	"monopod/manifests"
)

const patience = time.Minute

// bed is a Handler on a real socket, with a runtime that only acts as one.
type bed struct {
	t   testing.TB
	url string
	h   *Handler
	// canceled has what the commands said whose context ended.
	canceled chan string
	started  atomic.Int32
	stop     context.CancelFunc
	socket   string
}

func newBed(t testing.TB, edit func(*Config)) *bed {
	t.Helper()
	b := &bed{t: t, canceled: make(chan string, 100)}
	cfg := Config{
		Pods: b, Runtime: b, Log: slog.New(slog.DiscardHandler),
		Logs: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "log of "+r.PathValue("container"))
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	b.h = New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	srv := httptest.NewUnstartedServer(b.h)
	srv.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.Start()
	b.url = srv.URL
	dir, err := os.MkdirTemp("", "mp") // names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	b.socket = filepath.Join(dir, "s")
	ln, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Config.Serve(ln) }()
	t.Cleanup(func() {
		stop()
		_ = ln.Close()
		if err := <-served; err == nil {
			t.Error("the server has ended without a reason")
		}
		_ = os.RemoveAll(dir)
		b.h.Wait(t.Context())
		srv.Close()
	})
	return b
}

// FindPod implements Pods: there is one pod.
func (b *bed) FindPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	if namespace == "broken" {
		return nil, errors.New("nothing can be seen")
	}
	if name != "web" || namespace != "default" {
		return nil, nil
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "7"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "shell", TTY: true, Stdin: true}, {Name: "waits"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", ContainerID: "containerd://1", State: running}, {Name: "shell", ContainerID: "containerd://2", State: running}, {Name: "waits"},
		}},
	}, nil
}

// Stream implements Runtime with some commands.
func (b *bed) Stream(ctx context.Context, key manifests.Key, id string, command []string, s streams.Streams) (int, error) {
	if key.String() != "default/web" || id != "1" {
		return 0, fmt.Errorf("wrong container %s of %s", id, key)
	}
	b.started.Add(1)
	switch command[0] {
	case "cat":
		_, err := io.Copy(s.Stdout, s.Stdin)
		return 0, err
	case "both":
		_, err := io.WriteString(s.Stdout, "output "+strings.Join(command[1:], "|"))
		_, err2 := io.WriteString(s.Stderr, "error")
		return 7, errors.Join(err, err2)
	case "size":
		for range 2 {
			size := <-s.Resize
			fmt.Fprintf(s.Stdout, "%dx%d ", size.Width, size.Height)
		}
		fmt.Fprintf(s.Stdout, "terminal %t", s.TTY)
		return 0, nil
	case "flood":
		for ctx.Err() == nil {
			if _, err := s.Stdout.Write(make([]byte, 1<<16)); err != nil {
				break
			}
		}
		b.canceled <- strings.Join(command, " ")
		return 0, errors.New("nobody takes it")
	case "wait":
		_, _ = io.WriteString(s.Stdout, "ready")
		<-ctx.Done()
		b.canceled <- strings.Join(command, " ")
		return 0, context.Cause(ctx)
	case "broken":
		return 0, errors.New("it does not start")
	case "true":
		return 0, nil
	}
	return 0, fmt.Errorf("no command %q", command)
}

// Attach implements Runtime.
func (b *bed) Attach(_ context.Context, _ manifests.Key, id string, s streams.Streams) error {
	text := ""
	if s.Stdin != nil {
		all, err := io.ReadAll(s.Stdin)
		if err != nil {
			return err
		}
		text = string(all)
	}
	_, err := fmt.Fprintf(s.Stdout, "container %s, terminal %t: %s", id, s.TTY, text)
	return err
}

// Dial implements Runtime: the ports are those of this machine.
func (b *bed) Dial(ctx context.Context, _ manifests.Key, port int) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func (b *bed) dialUnix(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.socket)
}

// client is one way to run commands: (*Client).remote, or client-go's.
type client func(ctx context.Context, path string, q url.Values, s streams.Streams) (int, error)

func (b *bed) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", strings.TrimPrefix(b.url, "http://"))
}

func (b *bed) clients() map[string]client {
	config := &rest.Config{Host: b.url}
	with := func(executor func(u *url.URL) (remotecommand.Executor, error)) client {
		return func(ctx context.Context, path string, q url.Values, s streams.Streams) (int, error) {
			u, err := url.Parse(b.url + path + "?" + q.Encode())
			if err != nil {
				return 0, err
			}
			e, err := executor(u)
			if err != nil {
				return 0, err
			}
			o := remotecommand.StreamOptions{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY}
			if s.TTY {
				o.Stderr = nil
				o.TerminalSizeQueue = queue(s.Resize)
			}
			err = e.StreamWithContext(ctx, o)
			if code, ok := errors.AsType[exec.CodeExitError](err); ok {
				return code.Code, nil
			}
			return 0, err
		}
	}
	return map[string]client{
		"monopod": NewClient(time.Minute, b.dial).remote,
		"SPDY": with(func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(config, "POST", u)
		}),
		"WebSocket": with(func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(config, "GET", u.String())
		}),
		"SPDY v3": with(func(u *url.URL) (remotecommand.Executor, error) {
			transport, upgrader, err := spdyTransport(config)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutorForProtocols(transport, upgrader, "POST", u, protocolV3)
		}),
	}
}

type queue <-chan streams.Size

func (q queue) Next() *remotecommand.TerminalSize {
	if s, ok := <-q; ok {
		return &remotecommand.TerminalSize{Width: s.Width, Height: s.Height}
	}
	return nil
}

func TestCommandsByTheClientsThatPeopleUse(t *testing.T) {
	b := newBed(t, nil)
	for name, c := range b.clients() {
		t.Run(name, func(t *testing.T) {
			do := func(s streams.Streams, command ...string) (int, error) {
				t.Helper()
				q := kubeletNames(s)
				q["command"] = command
				return c(t.Context(), "/exec/default/web/app", q, s)
			}
			data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
			var out, errs bytes.Buffer
			if code, err := do(streams.Streams{Stdin: bytes.NewReader(data), Stdout: &out}, "cat"); code != 0 || err != nil || !bytes.Equal(out.Bytes(), data) {
				t.Errorf("cat: %d, %v, %d bytes", code, err, out.Len())
			}
			out.Reset()
			code, err := do(streams.Streams{Stdout: &out, Stderr: &errs}, "both", "a b", "&c=d")
			if name == "SPDY v3" { // which knows errors only as texts
				if err == nil || !strings.Contains(err.Error(), "exit status 7") {
					t.Errorf("both: %v", err)
				}
			} else if code != 7 || err != nil {
				t.Errorf("both: %d, %v", code, err)
			}
			if out.String() != "output a b|&c=d" || errs.String() != "error" {
				t.Errorf("both: %q, %q", out.String(), errs.String())
			}
			out.Reset()
			sizes := make(chan streams.Size, 2)
			sizes <- streams.Size{Width: 80, Height: 24}
			sizes <- streams.Size{Width: 100, Height: 30}
			code, err = do(streams.Streams{Stdout: &out, TTY: true, Resize: sizes}, "size")
			close(sizes)
			if code != 0 || err != nil || out.String() != "80x24 100x30 terminal true" {
				t.Errorf("size: %d, %v, %q", code, err, out.String())
			}
			if _, err := do(streams.Streams{Stdout: io.Discard}, "broken"); err == nil || !strings.Contains(err.Error(), "error executing command in container: it does not start") {
				t.Errorf("broken: %v", err)
			}
			out.Reset()
			s := streams.Streams{Stdin: strings.NewReader("typed"), Stdout: &out}
			if _, err := c(t.Context(), "/attach/default/web/7/shell", kubeletNames(s), s); err != nil || out.String() != "container 2, terminal true: typed" {
				t.Errorf("attach: %v, %q", err, out.String())
			}
			if _, err := c(t.Context(), "/exec/default/missing/app", url.Values{"command": {"x"}, "output": {"1"}}, streams.Streams{Stdout: io.Discard}); err == nil || name != "WebSocket" && !strings.Contains(err.Error(), `pod "default/missing" does not exist`) {
				t.Errorf("a pod that is not there: %v", err)
			}
		})
	}
}

// signaled tells when something is written.
type signaled struct{ c chan struct{} }

func (s signaled) Write(b []byte) (int, error) {
	if len(b) > 0 {
		select {
		case s.c <- struct{}{}:
		default:
		}
	}
	return len(b), nil
}

// endless is input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func (b *bed) wasCanceled(what string) {
	b.t.Helper()
	select {
	case got := <-b.canceled:
		if got != what {
			b.t.Errorf("%s was canceled, want %s", got, what)
		}
	case <-time.After(patience):
		b.t.Fatalf("%s goes on without its client", what)
	}
}

// TestACommandEndsWithItsClient, also one that takes nothing of what the client sends.
func TestACommandEndsWithItsClient(t *testing.T) {
	b := newBed(t, nil)
	test := func(c client, in io.Reader) func(*testing.T) {
		return func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := streams.Streams{Stdin: in, Stdout: signaled{make(chan struct{}, 1)}}
			q := kubeletNames(s)
			q["command"] = []string{"wait"}
			done := make(chan error, 1)
			go func() { _, err := c(ctx, "/exec/default/web/app", q, s); done <- err }()
			<-s.Stdout.(signaled).c
			cancel()
			if err := <-done; err == nil {
				t.Error("no error")
			}
			b.wasCanceled("wait")
		}
	}
	for name, c := range b.clients() {
		t.Run(name, test(c, nil))
	}
	// On the unix socket, where the end of a client does not wait behind what it has sent.
	t.Run("input that nobody reads", test(NewClient(time.Minute, b.dialUnix).remote, endless{}))
}

// wrapped is a connection in another one, as that of TLS, and that which a listener counts, are.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func TestTheSocketBelowAConnectionIsFound(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := duplicate(wrapped{wrapped{c}})
	if f == nil {
		t.Fatal("nobody would see its end")
	}
	_ = f.Close()
}

func TestACommandEndsWithTheServer(t *testing.T) {
	b := newBed(t, nil)
	s := streams.Streams{Stdout: signaled{make(chan struct{}, 1)}}
	q := kubeletNames(s)
	q["command"] = []string{"wait"}
	done := make(chan error, 1)
	go func() { _, err := b.clients()["monopod"](t.Context(), "/exec/default/web/app", q, s); done <- err }()
	<-s.Stdout.(signaled).c
	b.stop()
	b.h.Wait(t.Context())
	b.wasCanceled("wait")
	if err := <-done; !errors.Is(err, ErrLost) {
		t.Errorf("the client: %v", err)
	}
	res, err := http.Get(b.url + "/containerLogs/default/web/app")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("afterwards: %s", res.Status)
	}
}

// TestAnIdleConnectionEnds: nothing moves, or nothing can as the client takes nothing.
func TestAnIdleConnectionEnds(t *testing.T) {
	b := newBed(t, func(c *Config) { c.IdleTimeout = 50 * time.Millisecond })
	all, attempts := b.clients(), atomic.Int32{}
	for _, name := range []string{"monopod", "WebSocket"} {
		for _, command := range []string{"wait", "flood"} {
			t.Run(name+" "+command, func(t *testing.T) {
				for b.started.Store(0); b.started.Load() == 0; { // it may be idle before it begins
					hold, ended := make(chan struct{}), make(chan error, 1)
					s := streams.Streams{Stdout: held{command == "flood", hold}}
					q := kubeletNames(s)
					q["command"] = []string{command, fmt.Sprint(attempts.Add(1))}
					go func() { _, err := all[name](t.Context(), "/exec/default/web/app", q, s); ended <- err }()
					err := b.idle(strings.Join(q["command"], " "), ended)
					if close(hold); err == nil {
						err = <-ended
					}
					if err == nil {
						t.Error("no error")
					}
				}
			})
		}
	}
}

// idle waits until a command is canceled, or its client has ended, with an error. That of an earlier client may be canceled late.
func (b *bed) idle(command string, ended <-chan error) error {
	for {
		select {
		case got := <-b.canceled:
			if got == command {
				return nil
			}
		case err := <-ended:
			return err
		}
	}
}

// held takes nothing until it is let go.
type held struct {
	on bool
	c  chan struct{}
}

func (h held) Write(b []byte) (int, error) {
	if h.on {
		<-h.c
	}
	return len(b), nil
}

// received closes a WebSocket when its server has, and returns what came on all channels.
func received(ws *websocket.Conn) string {
	var all strings.Builder
	for {
		var m []byte
		if err := websocket.Message.Receive(ws, &m); err != nil {
			break
		}
		if len(m) > 1 {
			all.Write(m)
		}
	}
	_ = ws.Close()
	return all.String()
}

func TestPlainWebSockets(t *testing.T) {
	b := newBed(t, nil)
	for protocol, want := range map[string]string{
		"":               "\x01output \x02error\x03command terminated with non-zero exit code: exit status 7",
		protocolV1:       "\x01output \x02error\x03command terminated with non-zero exit code: exit status 7",
		protocolV4:       "\x01output \x02error\x03{",
		protocolV1Base64: "1b3V0cHV0IA==2ZXJyb3I=3Y29tbWFuZC",
		protocolV4Base64: "1b3V0cHV0IA==2ZXJyb3I=3ey",
	} {
		config, err := websocket.NewConfig(strings.Replace(b.url, "http", "ws", 1)+"/exec/default/web/app?output=1&error=1&command=both", "http://localhost")
		if err != nil {
			t.Fatal(err)
		}
		if protocol != "" {
			config.Protocol = []string{protocol}
		}
		ws, err := websocket.DialConfig(config)
		if err != nil {
			t.Fatalf("%q: %v", protocol, err)
		}
		all := received(ws)
		if !strings.HasPrefix(all, want) {
			t.Errorf("%q: %q", protocol, all)
		}
	}
}

// TestStreamsThatNobodyAskedForStopNothing: what comes for a stream waits behind the opening of another one.
func TestStreamsThatNobodyAskedForStopNothing(t *testing.T) {
	b := newBed(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q := url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}}
	conn, release, err := NewClient(time.Minute, b.dial).upgrade(ctx, "/exec/default/web/app", q, protocolV4)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	all := map[string]httpstream.Stream{}
	for _, name := range []string{corev1.StreamTypeError, corev1.StreamTypeStdin, corev1.StreamTypeStdout} {
		if all[name], err = conn.CreateStream(header(corev1.StreamType, name)); err != nil {
			t.Fatal(err)
		}
	}
	echoes := func(text string) {
		t.Helper()
		if _, err := io.WriteString(all[corev1.StreamTypeStdin], text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(all[corev1.StreamTypeStdout], got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	echoes("before")
	for i := range 5 { // one for each of the queues of the server
		if _, err := conn.CreateStream(header(corev1.StreamType, corev1.StreamTypeStdin)); err == nil {
			t.Errorf("stream %d is taken", i)
		}
	}
	echoes("afterwards")
	_ = all[corev1.StreamTypeStdin].Close()
	if text, err := io.ReadAll(all[corev1.StreamTypeError]); err != nil || !strings.Contains(string(text), metav1.StatusSuccess) {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSizesOfNoTerminalStopNothing: a WebSocket has a channel for them in any case, and a client may take for a terminal what
// is none.
func TestSizesOfNoTerminalStopNothing(t *testing.T) {
	b := newBed(t, nil)
	for request, want := range map[string]string{
		"/exec/default/web/app?input=1&output=1&command=cat": "\x01typed",
		"/attach/default/web/app?input=1&output=1&tty=1":     "\x01container 1, terminal false: typed",
	} {
		config, err := websocket.NewConfig(strings.Replace(b.url, "http", "ws", 1)+request, "http://localhost")
		if err != nil {
			t.Fatal(err)
		}
		config.Protocol = []string{protocolV5}
		ws, err := websocket.DialConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		for _, frame := range []string{"\x04" + `{"Width": 80, "Height": 24}`, "\x04" + `{"Width": 90, "Height": 24}`, "\x04{}", "\x00typed", "\xff\x00"} {
			if err := websocket.Message.Send(ws, []byte(frame)); err != nil {
				t.Fatal(err)
			}
		}
		all := received(ws)
		if !strings.HasPrefix(all, want+"\x03{") || !strings.Contains(all, metav1.StatusSuccess) {
			t.Errorf("%s: %q", request, all)
		}
	}
}

func TestRequestsThatCannotBeServed(t *testing.T) {
	b := newBed(t, nil)
	for request, want := range map[string]string{
		"POST /exec/default/web/app?command=x":                         "400 you must specify at least 1 of stdin, stdout, stderr",
		"POST /exec/default/web/app?output=1":                          "400 no command is given",
		"POST /exec/default/web/app?output=1&command=x":                "400 unable to upgrade: ",
		"POST /exec/default/web/none?output=1&command=x":               `404 container not found ("none")`,
		"POST /exec/default/web/waits?output=1&command=x":              `400 container "waits" of pod "web" is not running`,
		"GET /exec/default/web/8/app?output=1&command=x":               `404 pod "default/web" does not exist`,
		"GET /exec/broken/web/app?output=1&command=x":                  "503 nothing can be seen",
		"POST /attach/default/none/app?output=1":                       `404 pod "default/none" does not exist`,
		"POST /portForward/default/none":                               `404 pod "default/none" does not exist`,
		"DELETE /exec/default/web/app":                                 "405 ",
		"GET /containerLogs/default/web/app":                           "200 log of app",
		"POST /run/default/web/app?cmd=both+a++b":                      "500 output a|berrorcommand terminated with non-zero exit code: exit status 7",
		"POST /run/default/web/app?cmd=true":                           "200 ",
		"POST /run/default/web/app?cmd=broken":                         "500 it does not start",
		"POST /run/default/web/app":                                    "400 no cmd is given",
		"POST /run/default/none/app?cmd=true":                          `404 pod "default/none" does not exist`,
		"GET /unknown":                                                 "404 404 page not found",
		"GET /exec/default/web/app/too/many/parts?output=1&command=ls": "404 ",
	} {
		method, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if got := fmt.Sprintf("%d %s", res.StatusCode, body); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v, want %q", request, got, err, want)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestMuchOutputOfARunIsNotKeptBack(t *testing.T) {
	w := httptest.NewRecorder()
	l := &lateWriter{w: w}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 20 {
				_, _ = l.Write(make([]byte, 4<<10))
			}
		})
	}
	wg.Wait()
	if w.Body.Len() == 0 || l.kept.Len() > runRoom {
		t.Errorf("%d bytes are sent and %d kept", w.Body.Len(), l.kept.Len())
	}
	l.fail("bad end")
	if got := w.Body.String(); w.Code != http.StatusOK || !strings.HasSuffix(got, "bad end\n") || len(got) != 2*20*4<<10+len("bad end\n") {
		t.Errorf("%d, %d bytes", w.Code, len(got))
	}
}

// kubeletNames names the streams as the kubelet does.
func kubeletNames(s streams.Streams) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"input": s.Stdin != nil, "output": s.Stdout != nil, "error": s.Stderr != nil && !s.TTY, "tty": s.TTY} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

func TestTheClientAsksTheKubernetesAPI(t *testing.T) {
	if got := path(manifests.Key{Namespace: "a", Name: "b/c"}, "exec"); got != "/api/v1/namespaces/a/pods/b%2Fc/exec" {
		t.Error(got)
	}
	if got := announce("app", streams.Streams{Stdin: strings.NewReader(""), Stderr: io.Discard}).Encode(); got != "container=app&stderr=true&stdin=true" {
		t.Error(got)
	}
	if got := announce("app", streams.Streams{Stdout: io.Discard, Stderr: io.Discard, TTY: true}).Encode(); got != "container=app&stdout=true&tty=true" {
		t.Error(got)
	}
}
