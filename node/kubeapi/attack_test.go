package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/listener"
)

// fortress is the API on a real listener, and a client that attacks it.
type fortress struct {
	t    *testing.T
	addr string
	ca   *authority.Authority
	open []net.Conn
}

func besieged(t *testing.T, connections int, objects ...kinds.Object) *fortress {
	t.Helper()
	f := &fortress{t: t, ca: authority.New(authority.Config{
		Dir: filepath.Join(t.TempDir(), "api"), Names: func() ([]string, []netip.Addr) { return []string{"node"}, nil },
	})}
	api := New(Config{State: newMemory(objects...), Writer: writer{}, Policy: access.NewPolicy(nil), Epoch: 1})
	server, err := listener.New(listener.Config{Authority: f.ca, Log: slog.New(slog.DiscardHandler), Handler: api.Handler(), MaxConnections: connections})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		f.end()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fortress) tls(user, group string) *tls.Config {
	f.t.Helper()
	bundle, err := f.ca.Bundle()
	if err != nil {
		f.t.Fatal(err)
	}
	cert, key, err := f.ca.Client(user, []string{group})
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		f.t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "node", Certificates: []tls.Certificate{pair}}
	conf.RootCAs.AppendCertsFromPEM(bundle)
	return conf
}

// end closes the connections of the attacker.
func (f *fortress) end() {
	for _, c := range f.open {
		_ = c.Close()
	}
	f.open = nil
}

// connect opens a connection that takes as little as possible; nil: it is refused.
func (f *fortress) connect() net.Conn {
	d := net.Dialer{Timeout: 30 * time.Second, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1024) })
	}}
	c, err := d.DialContext(f.t.Context(), "tcp", f.addr)
	if err != nil {
		return nil
	}
	f.open = append(f.open, c)
	return c
}

// send writes a request, and reads at most the status of the answer, if it is asked for.
func (f *fortress) send(conf *tls.Config, text string, read bool) (status string) {
	raw := f.connect()
	if raw == nil {
		return ""
	}
	c := tls.Client(raw, conf)
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, text) // an answer may come before all is written
	if !read {
		return ""
	}
	b := make([]byte, 12)
	_, _ = io.ReadFull(c, b)
	return strings.TrimPrefix(string(b), "HTTP/1.1 ")
}

// heap is what Go has in use, after garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// settles waits until goroutines have come back.
func (f *fortress) settles(most int) {
	f.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; {
		n := runtime.NumGoroutine()
		if n <= most {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d goroutines, %d before", n, most)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestAttackOverHTTP: many clients that never read, never write, or write too much. Others are served meanwhile, and nothing
// of them is left. MONOPOD_ATTACK=1: with 10,000 connections, as far as files suffice, and the memory for them is bounded.
func TestAttackOverHTTP(t *testing.T) {
	connections, large := 60, os.Getenv("MONOPOD_ATTACK") != ""
	if large {
		connections = 10_000
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
			connections = min(connections, int(files.Cur/2)-200) // both ends are of this process
		}
	}
	var pods []kinds.Object
	for i := range 300 {
		p := testPod("shop", fmt.Sprintf("pod-%d", i), "web")
		p.Annotations = map[string]string{"text": strings.Repeat("x", 8_000)}
		pods = append(pods, p)
	}
	f := besieged(t, connections+500, pods...)
	enemy := f.tls("mallory", access.GroupEdit)
	friend := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls("alice", access.GroupView)}, Timeout: time.Minute}
	works := func(while string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.addr+"/api/v1/namespaces/shop/pods/pod-7", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := friend.Do(r)
		if err != nil {
			t.Fatalf("while %s: %v", while, err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if _ = answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("while %s: %d, %v", while, answer.StatusCode, err)
		}
	}
	works("nothing happens")
	idle, goroutines := heap(), runtime.NumGoroutine()
	bounded := func(while string, each int) {
		t.Helper()
		works(while)
		now := heap()
		t.Logf("%s: %d connections, %.1f MiB more than %.1f, %d goroutines", while, len(f.open), float64(int64(now)-int64(idle))/(1<<20), float64(idle)/(1<<20), runtime.NumGoroutine())
		if most := idle + uint64(len(f.open)*each) + 16<<20; large && now > most {
			t.Errorf("%s: %d MiB, at most %d are expected", while, now>>20, most>>20)
		}
		f.end()
		f.settles(goroutines + 6)
	}

	const host = " HTTP/1.1\r\nHost: node\r\n"
	refused := 0
	for range maxWatches + 20 {
		path := "GET /api/v1/namespaces/shop/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		if f.send(enemy, path+host+"\r\n", true) == "429" {
			refused++
		}
	}
	if refused < 20 {
		t.Errorf("%d of %d watches are refused", refused, maxWatches+20)
	}
	bounded("watches are not read", 200<<10)

	for range connections / 4 {
		f.send(enemy, "GET /api/v1/pods"+host+"\r\n", false)
	}
	bounded("lists are not read", 200<<10)

	for range connections / 4 {
		f.send(enemy, "POST /api/v1/namespaces/shop/configmaps"+host+"Content-Length: 3000000\r\n\r\n{\"a\":", false)
	}
	bounded("bodies are slow", 200<<10)

	var dialing sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		dialing.Go(func() {
			for range connections / 4 {
				if c, err := net.Dial("tcp", f.addr); err == nil { //nolint:noctx // of this machine
					mu.Lock()
					f.open = append(f.open, c)
					mu.Unlock()
				}
			}
		})
	}
	dialing.Wait()
	bounded("connections say nothing", 20<<10)

	for text, want := range map[string]string{
		"POST /api/v1/namespaces/shop/configmaps" + host + "Content-Length: 300000000\r\n\r\n":                                                         "413",
		"POST /api/v1/namespaces/shop/configmaps" + host + "Content-Length: 100000\r\n\r\n" + strings.Repeat("[", 100_000):                             "400",
		"POST /api/v1/namespaces/shop/pods" + host + "Content-Type: application/yaml\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("- ", 50_000): "400",
		"GET /api/v1/pods" + host + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n":                                                                    "431",
		"GET /api/v1/pods" + host + "Accept: " + strings.Repeat("a/b,", 10_000) + "\r\n\r\n":                                                           "431",
		"GET /api/v1/pods?labelSelector=" + strings.Repeat("a,", 20_000) + host + "\r\n":                                                               "431",
	} {
		if got := f.send(enemy, text, true); !strings.HasPrefix(got, want) {
			t.Errorf("%.60q: %s, want %s", text, got, want)
		}
	}
	bounded("requests are too large", 200<<10)
	friend.CloseIdleConnections()
}
