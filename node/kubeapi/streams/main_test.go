package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
	"monopod/node/stream"
)

// TestMain forgives client-go's clients what stays of them for some seconds.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// machine is an API with one pod, and a runtime that only acts as one. Ports of the pod are those of this machine.
type machine struct {
	t       testing.TB
	url     string
	handler *Handler
	// blind makes pods unseen. logs serves logs; nil: it writes the request.
	blind bool
	logs  http.HandlerFunc
	dial  func(ctx context.Context, port int) (net.Conn, error)
	// ended has what streams said when their context ended.
	ended chan string
}

func newMachine(t testing.TB, edit func(*machine, *Config)) *machine {
	t.Helper()
	m := &machine{t: t, ended: make(chan string, 10)}
	m.dial = func(ctx context.Context, port int) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	}
	kubelet := stream.New(stream.Config{Pods: m, Runtime: m, Log: slog.New(slog.DiscardHandler), Logs: func(w http.ResponseWriter, r *http.Request) {
		if m.logs != nil {
			m.logs(w, r)
			return
		}
		fmt.Fprintf(w, "%s?%s", r.URL.Path, r.URL.RawQuery)
	}})
	cfg := Config{Streams: kubelet, Dial: func(ctx context.Context, _ manifests.Key, port int) (net.Conn, error) { return m.dial(ctx, port) }}
	if edit != nil {
		edit(m, &cfg)
	}
	m.handler = New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	server := httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	m.url = server.URL + "/api/v1/namespaces/default"
	t.Cleanup(func() {
		stop()
		kubelet.Wait(context.Background())
		server.Close()
	})
	return m
}

// serve does what node/kubeapi does.
func (m *machine) serve(w http.ResponseWriter, r *http.Request) {
	req, err := request.Parse(r, kinds.Served{})
	if err != nil {
		m.t.Errorf("%s: %v", r.URL, err)
		return
	}
	target, err := ParseTarget(req.Name)
	if err != nil {
		m.t.Errorf("%s: %v", r.URL, err)
		return
	}
	pod, _ := m.FindPod(r.Context(), req.Namespace, "web")
	switch {
	case req.Kind.Kind == "Node":
		m.handler.ProxyNode(w, r, req)
	case req.Subresource == "proxy":
		port, err := target.PodPort(pod)
		if err != nil {
			m.t.Errorf("%s: %v", r.URL, err)
		}
		m.handler.Proxy(w, r, req, pod, port, target.Secure)
	default:
		if pod == nil { // the log of revisions still has it
			pod = web()
		}
		m.handler.Serve(w, r, req, pod)
	}
}

func web() *corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "7", Annotations: map[string]string{defaultContainer: "app"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}},
			Containers:     []corev1.Container{{Name: "other", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}, {Name: "app"}, {Name: "shell", TTY: true, Stdin: true}},
		},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", ContainerID: "containerd://1", State: running}, {Name: "shell", ContainerID: "containerd://2", State: running}, {Name: "other"},
		}},
	}
}

// FindPod implements stream.Pods.
func (m *machine) FindPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	if m.blind {
		return nil, errors.New("containers cannot be seen")
	}
	if name != "web" {
		return nil, nil
	}
	return web(), nil
}

// Stream implements stream.Runtime with some commands.
func (m *machine) Stream(ctx context.Context, key manifests.Key, id string, command []string, s streams.Streams) (int, error) {
	switch command[0] {
	case "cat":
		_, err := io.Copy(s.Stdout, s.Stdin)
		return 0, err
	case "both":
		_, err := fmt.Fprintf(s.Stdout, "%s %s %s", key, id, strings.Join(command[1:], "|"))
		_, err2 := io.WriteString(s.Stderr, "error")
		return 7, errors.Join(err, err2)
	case "size":
		size := <-s.Resize
		_, err := fmt.Fprintf(s.Stdout, "%dx%d terminal %t", size.Width, size.Height, s.TTY)
		return 0, err
	case "wait":
		_, _ = io.WriteString(s.Stdout, "ready")
		<-ctx.Done()
		m.ended <- "wait"
		return 0, context.Cause(ctx)
	}
	return 0, fmt.Errorf("no command %q", command)
}

// Attach implements stream.Runtime.
func (m *machine) Attach(_ context.Context, _ manifests.Key, id string, s streams.Streams) error {
	text, err := io.ReadAll(s.Stdin)
	_, err2 := fmt.Fprintf(s.Stdout, "container %s: %s", id, text)
	return errors.Join(err, err2)
}

// Dial implements stream.Runtime.
func (m *machine) Dial(ctx context.Context, _ manifests.Key, port int) (net.Conn, error) {
	return m.dial(ctx, port)
}

func (m *machine) wantEnded(what string) {
	m.t.Helper()
	select {
	case got := <-m.ended:
		if got != what {
			m.t.Errorf("%s has ended, want %s", got, what)
		}
	case <-time.After(time.Minute):
		m.t.Fatalf("%s goes on without its client", what)
	}
}
