package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"monopod/internal/loopback"
)

// ask makes one attempt of a handler of a container with the given ports, whose pod is this machine.
func ask(t *testing.T, h corev1.ProbeHandler, ports ...corev1.ContainerPort) Outcome {
	t.Helper()
	target := Target{Container: &corev1.Container{Ports: ports}, Host: func() string { return "" }}
	return attempt(t.Context(), newHandler(h, target), time.Minute)
}

// patience returns the timeout of an attempt: it is short only for paths that never answer.
func patience(path string) time.Duration {
	if path == "/slow" {
		return 200 * time.Millisecond
	}
	return time.Minute
}

func check(t *testing.T, o Outcome, result Result, output string) {
	t.Helper()
	if o.Result != result || !strings.Contains(o.Output, output) {
		t.Errorf("%s %q, want %s %q", o.Result, o.Output, result, output)
	}
}

func portIn(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func httpGet(port int, path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(int32(port)), Path: path, Scheme: corev1.URISchemeHTTP}}
}

// site answers probes in many ways.
func site(w http.ResponseWriter, r *http.Request) {
	hop, _ := strconv.Atoi(r.URL.Query().Get("hop"))
	switch r.URL.Path {
	case "/slow":
		<-r.Context().Done()
	case "/here":
		http.Redirect(w, r, "/ok", http.StatusFound)
	case "/broken-here":
		http.Redirect(w, r, "/500", http.StatusMovedPermanently)
	case "/port":
		http.Redirect(w, r, "http://"+r.Host+"/500", http.StatusTemporaryRedirect)
	case "/elsewhere":
		http.Redirect(w, r, "http://elsewhere.example/500", http.StatusFound)
	case "/hops":
		if hop > 0 {
			http.Redirect(w, r, fmt.Sprintf("/hops?hop=%d", hop-1), http.StatusSeeOther)
		}
	case "/nowhere":
		w.WriteHeader(http.StatusFound)
	case "/early":
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	case "/long":
		_, _ = w.Write(make([]byte, 1<<20))
	case "/echo":
		_, _ = fmt.Fprintf(w, "%s %s\n", r.Host, r.RequestURI)
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for k := range r.Header {
				if !yield(k) {
					return
				}
			}
		}) {
			_, _ = fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header[name], ","))
		}
		if r.Close {
			_, _ = fmt.Fprintln(w, "closing")
		}
	default:
		code, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			code = http.StatusOK
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "this is %d", code)
	}
}

func TestHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(site))
	defer s.Close()
	port := portIn(t, s.URL)
	for _, tt := range []struct {
		path   string
		result Result
		output string
	}{
		{"/ok", Success, "this is 200"},
		{"", Success, "this is 200"},
		{"/204", Success, ""},
		{"/304", Success, ""},
		{"/399", Success, ""},
		{"/early", Success, ""},
		{"/400", Failure, "HTTP probe failed with statuscode: 400"},
		{"/500", Failure, "HTTP probe failed with statuscode: 500"},
		{"/here", Success, "this is 200"},
		{"/broken-here", Failure, "statuscode: 500"},
		{"/port", Failure, "statuscode: 500"},
		{"/elsewhere", Warning, "Probe terminated redirects"},
		{"/nowhere", Success, ""},
		{"/hops?hop=9", Success, ""},
		{"/hops?hop=10", Failure, "stopped after 10 redirects"},
		{"/slow", Failure, "no answer within"},
		{"/%zz", Success, ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			target := Target{Container: &corev1.Container{}, Host: func() string { return "" }}
			check(t, attempt(t.Context(), newHandler(httpGet(port, tt.path), target), patience(tt.path)), tt.result, tt.output)
		})
	}
	t.Run("a long answer is truncated", func(t *testing.T) {
		if o := ask(t, httpGet(port, "/long")); o.Result != Success || len(o.Output) != outputLimit {
			t.Errorf("%s with %d bytes", o.Result, len(o.Output))
		}
	})
	check(t, ask(t, httpGet(loopback.Closed(t), "/")), Failure, "connection refused")
}

// siteHTTP2 serves site over HTTP/2 without TLS only.
func siteHTTP2(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(site))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func TestHTTP2WithoutTLS(t *testing.T) {
	s := siteHTTP2(t)
	port := portIn(t, s.URL)
	http2 := func(port int, path string) corev1.ProbeHandler {
		h := httpGet(port, path)
		h.HTTPGet.Protocol = new(corev1.HTTPProtocolHTTP2)
		return h
	}
	for _, tt := range []struct {
		path   string
		result Result
		output string
	}{
		{"/ok", Success, "this is 200"},
		{"", Success, "this is 200"},
		{"/204", Success, ""},
		{"/304", Success, ""},
		{"/early", Success, ""},
		{"/500", Failure, "HTTP probe failed with statuscode: 500"},
		{"/here", Success, "this is 200"},
		{"/broken-here", Failure, "statuscode: 500"},
		{"/elsewhere", Warning, "Probe terminated redirects"},
		{"/hops?hop=10", Failure, "stopped after 10 redirects"},
		{"/slow", Failure, "no answer within"},
		{"/%zz", Success, ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			target := Target{Container: &corev1.Container{}, Host: func() string { return "" }}
			check(t, attempt(t.Context(), newHandler(http2(port, tt.path), target), patience(tt.path)), tt.result, tt.output)
		})
	}
	if o := ask(t, http2(port, "/long")); o.Result != Success || len(o.Output) != outputLimit {
		t.Errorf("%s with %d bytes", o.Result, len(o.Output))
	}
	h := http2(port, "/echo?a=b%20c")
	h.HTTPGet.HTTPHeaders = []corev1.HTTPHeader{{Name: "host", Value: "web.example"}, {Name: "X-A", Value: "1"}}
	if o := ask(t, h); o.Output != "web.example /echo?a=b%20c\nAccept=*/*\nUser-Agent=kube-probe/1.37\nX-A=1\n" {
		t.Errorf("the server was asked\n%s", o.Output)
	}
	check(t, ask(t, httpGet(port, "/ok")), Failure, "")
	old := httptest.NewServer(http.HandlerFunc(site))
	defer old.Close()
	check(t, ask(t, http2(portIn(t, old.URL), "/ok")), Failure, "")
	check(t, ask(t, http2(loopback.Closed(t), "/ok")), Failure, "connection refused")
}

func TestHTTPHeaders(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(site))
	defer s.Close()
	port := portIn(t, s.URL)
	tests := []struct {
		name    string
		headers []corev1.HTTPHeader
		want    string
	}{
		{"those of every probe", nil, fmt.Sprintf("127.0.0.1:%d /echo?a=b%%20c\nAccept=*/*\nConnection=close\nUser-Agent=kube-probe/1.37\nclosing\n", port)},
		{
			"the manifest's own come instead and besides",
			[]corev1.HTTPHeader{{Name: "host", Value: "web.example"}, {Name: "user-agent", Value: "me"}, {Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}, {Name: "Accept", Value: "text/html"}},
			"web.example /echo?a=b%20c\nAccept=text/html\nConnection=close\nUser-Agent=me\nX-A=1,2\nclosing\n",
		},
		{
			"empty ones are left out",
			[]corev1.HTTPHeader{{Name: "User-Agent"}, {Name: "Accept"}},
			fmt.Sprintf("127.0.0.1:%d /echo?a=b%%20c\nConnection=close\nclosing\n", port),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := httpGet(port, "/echo?a=b%20c")
			h.HTTPGet.HTTPHeaders = tt.headers
			if o := ask(t, h); o.Output != tt.want {
				t.Errorf("the server was asked\n%s\nwant\n%s", o.Output, tt.want)
			}
		})
	}
}

func TestHTTPSWithUntrustedCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(site))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	h := httpGet(0, "/ok")
	h.HTTPGet.Scheme, h.HTTPGet.Port, h.HTTPGet.Host = corev1.URISchemeHTTPS, intstr.FromString("secure"), "127.0.0.1"
	named := corev1.ContainerPort{Name: "secure", ContainerPort: int32(portIn(t, s.URL))}
	check(t, ask(t, h, named), Success, "this is 200")
	h.HTTPGet.Path = "/503"
	check(t, ask(t, h, named), Failure, "503")
	h.HTTPGet.Scheme = corev1.URISchemeHTTP
	check(t, ask(t, h, named), Failure, "400") // the answer of Go to a client without TLS
	plain := httptest.NewServer(http.HandlerFunc(site))
	defer plain.Close()
	h.HTTPGet.Scheme = corev1.URISchemeHTTPS
	check(t, ask(t, h, corev1.ContainerPort{Name: "secure", ContainerPort: int32(portIn(t, plain.URL))}), Failure, "TLS handshake")
}

// TestInvalidHTTPAnswers uses servers that do not speak HTTP or close the connection early.
func TestInvalidHTTPAnswers(t *testing.T) {
	for answer, result := range map[string]Result{
		"":                                  Failure,
		"SSH-2.0-OpenSSH\r\n":               Failure,
		"HTTP/1.1 200 OK\r\n":               Failure,
		"HTTP/1.0 200 OK\r\n\r\nto the end": Success,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort":                         Errored,
		"HTTP/1.1 302 Go\r\nLocation: ://\r\n\r\n":                                  Failure,
		"HTTP/1.1 302 Go\r\nLocation: ftp://127.0.0.1/\r\n\r\n":                     Failure,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n": Success,
	} {
		t.Run(answer, func(t *testing.T) {
			l := listen(t)
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 4096))
					_, _ = io.WriteString(c, answer)
					_ = c.Close()
				}
			}()
			check(t, ask(t, httpGet(portIn(t, l.Addr().String()), "/")), result, "")
		})
	}
}

func TestTCP(t *testing.T) {
	l := listen(t)
	defer l.Close()
	port := corev1.ContainerPort{Name: "db", ContainerPort: int32(portIn(t, l.Addr().String()))}
	tcp := func(p intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: p}}
	}
	check(t, ask(t, tcp(intstr.FromString("db")), port), Success, "")
	check(t, ask(t, tcp(intstr.FromInt32(port.ContainerPort))), Success, "")
	check(t, ask(t, tcp(intstr.FromString("other")), port), Errored, "couldn't find port: other")
	check(t, ask(t, tcp(intstr.FromInt(loopback.Closed(t)))), Failure, "connection refused")
}

// TestHostOfHTTPProbe: the host of the manifest has precedence, then the address of the pod, which may change.
func TestHostOfHTTPProbe(t *testing.T) {
	host := "10.0.0.7"
	target := Target{Container: &corev1.Container{}, Host: func() string { return host }}
	if got := addressOf("", 80, target)(); got != "10.0.0.7:80" {
		t.Error(got)
	}
	if got := addressOf("db.example", 80, target)(); got != "db.example:80" {
		t.Error(got)
	}
	h := newHandler(httpGet(80, "/x"), target).(*httpHandler)
	for _, want := range []string{"10.0.0.7", "fd00::1", ""} {
		host = want
		if want == "" {
			want = "127.0.0.1"
		}
		r, err := h.request()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := h.request(); r.URL.Hostname() != want || again != r || err != nil {
			t.Errorf("%s, %v, want %s, encoded once", r.URL, err, want)
		}
	}
}

// serveGRPC runs a gRPC server, with or without the health service.
func serveGRPC(t *testing.T, with bool, options ...grpc.ServerOption) (port int, set func(service string, s healthpb.HealthCheckResponse_ServingStatus)) {
	t.Helper()
	l := listen(t)
	s, h := grpc.NewServer(options...), health.NewServer()
	if with {
		healthpb.RegisterHealthServer(s, h)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return portIn(t, l.Addr().String()), h.SetServingStatus
}

func grpcProbe(port int, service string) corev1.ProbeHandler {
	return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port), Service: &service}}
}

func TestGRPC(t *testing.T) {
	port, set := serveGRPC(t, true)
	check(t, ask(t, grpcProbe(port, "")), Success, "")
	check(t, ask(t, grpcProbe(port, "a.b.C")), Failure, "NotFound")
	set("a.b.C", healthpb.HealthCheckResponse_NOT_SERVING)
	check(t, ask(t, grpcProbe(port, "a.b.C")), Failure, `service unhealthy (responded with "NOT_SERVING")`)
	set("a.b.C", healthpb.HealthCheckResponse_UNKNOWN)
	check(t, ask(t, grpcProbe(port, "a.b.C")), Failure, `service unhealthy (responded with "UNKNOWN")`)
	set("a.b.C", healthpb.HealthCheckResponse_SERVING)
	check(t, ask(t, grpcProbe(port, "a.b.C")), Success, "")
	without, _ := serveGRPC(t, false)
	check(t, ask(t, grpcProbe(without, "")), Failure, "does not implement the grpc health protocol")
	check(t, ask(t, grpcProbe(loopback.Closed(t), "")), Failure, "failed to connect")
}

func TestGRPCWithTLS(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(site)) // for its certificate
	defer web.Close()
	port, _ := serveGRPC(t, true, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	h := grpcProbe(port, "")
	h.GRPC.Mode = ptr.To(corev1.GRPCProbeModeTLS)
	check(t, ask(t, h), Success, "")
	h.GRPC.Mode = ptr.To(corev1.GRPCProbeModePlaintext)
	check(t, ask(t, h), Failure, "")
}

func TestGRPCWithoutGRPCServer(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(site))
	defer web.Close()
	check(t, ask(t, grpcProbe(portIn(t, web.URL), "")), Failure, "health rpc probe failed")
	silent := listen(t)
	defer silent.Close()
	h := newHandler(grpcProbe(portIn(t, silent.Addr().String()), ""), Target{Container: &corev1.Container{}, Host: func() string { return "" }})
	check(t, attempt(t.Context(), h, 200*time.Millisecond), Failure, "within 200ms") // to connect, or to answer
}

func TestExec(t *testing.T) {
	results := map[string]struct {
		code int
		err  error
	}{"good": {}, "bad": {code: 2}, "late": {err: fmt.Errorf("%w after 1s", ErrTimeout)}, "none": {err: errors.New("no such file")}}
	target := Target{
		Container: &corev1.Container{Env: []corev1.EnvVar{
			{Name: "WORD", Value: "good"}, {Name: "FROM", ValueFrom: &corev1.EnvVarSource{}},
		}},
		Exec: func(_ context.Context, command []string, _ time.Duration, _ int) (int, []byte, error) {
			r := results[command[0]]
			return r.code, []byte(strings.Join(command, "|")), r.err
		},
	}
	for _, tt := range []struct {
		command []string
		result  Result
		output  string
	}{
		{[]string{"$(WORD)", "$(FROM)", "$$(WORD)"}, Success, "good|$(FROM)|$(WORD)"},
		{[]string{"bad"}, Failure, "bad"},
		{[]string{"late"}, Failure, "timed out"},
		{[]string{"none"}, Errored, "no such file"},
	} {
		h := newHandler(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: tt.command}}, target)
		check(t, attempt(t.Context(), h, time.Second), tt.result, tt.output)
	}
}

func TestAnAttemptEndsWithItsContext(t *testing.T) {
	silent := listen(t)
	defer silent.Close()
	port := portIn(t, silent.Addr().String())
	for _, h := range []corev1.ProbeHandler{httpGet(port, "/"), grpcProbe(port, "")} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Outcome, 1)
		go func() {
			target := Target{Container: &corev1.Container{}, Host: func() string { return "" }}
			done <- attempt(ctx, newHandler(h, target), time.Hour)
		}()
		c, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 1)) // wait for the request
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("the attempt goes on")
		}
		_ = c.Close()
	}
}
