//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// inNetworkOf runs a function in the network namespace of a process. Sockets that it opens stay there.
func inNetworkOf(t *testing.T, pid int, open func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			err = errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), ns.Close())
		}
		if err == nil {
			err = open()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// attackTime is the duration of a flood.
func attackTime() time.Duration {
	if large() {
		return 20 * time.Second
	}
	return time.Second
}

// query is a DNS query for the addresses of a name.
func query(t *testing.T, name string) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAttackNames: a pod that floods the name server does not increase the agent's memory and does not keep other pods from getting
// answers.
func TestAttackNames(t *testing.T) {
	a := newAttacked(t)
	a.put("flood", sleeper("flood", ":"))
	pid := a.pidOf("flood")
	gateway := netip.MustParsePrefix(a.subnet).Masked().Addr().Next().String()
	resolver := net.JoinHostPort(gateway, "53")
	own, foreign := query(t, "good.default.svc.cluster.local."), query(t, "nowhere.example.")
	for name, packets := range map[string][][]byte{
		"of its own names": {own}, "of names of the host's resolvers": {foreign}, "of noise": {bytes.Repeat([]byte("x"), 1400), {0}, own[:15]}, "of all": {own, foreign, {0}},
	} {
		var sockets []net.Conn
		inNetworkOf(t, pid, func() error {
			for range 64 {
				c, err := net.Dial("udp", resolver)
				if err != nil {
					return err
				}
				sockets = append(sockets, c)
			}
			return nil
		})
		a.survives("a flood "+name, func() {
			var all sync.WaitGroup
			until := time.Now().Add(attackTime())
			for _, c := range sockets {
				all.Go(func() {
					defer c.Close()
					for time.Now().Before(until) {
						for _, p := range packets {
							_, _ = c.Write(p)
						}
					}
				})
			}
			a.eventually("the pod good is answered", func() error {
				out, err := a.run("exec", "good", "--", "nslookup", "-type=a", "kubernetes.default.svc.cluster.local", gateway)
				if err != nil && !strings.Contains(out+err.Error(), "NXDOMAIN") {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			all.Wait()
		})
	}
	a.survives("connections without end", func() {
		var sockets []net.Conn
		inNetworkOf(t, pid, func() error {
			for range 1000 {
				c, err := net.DialTimeout("tcp", resolver, time.Second)
				if err != nil {
					return nil //nolint:nilerr // it takes no more
				}
				_, _ = c.Write([]byte{0xff, 0xff, 0})
				sockets = append(sockets, c)
			}
			return nil
		})
		t.Logf("%d connections", len(sockets))
		for _, c := range sockets {
			_ = c.Close()
		}
	})
}

// TestAttackClients: whatever clients of the API send, and however many there are, the agent stays within its memory limit.
func TestAttackClients(t *testing.T) {
	a := newAttacked(t)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(a.state, "monopod.sock"))
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: patience}
	send := func(method, path string, body io.Reader) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://monopod"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return // it may hang up
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<20))
		if res.StatusCode < 400 {
			t.Errorf("%s %s: %s", method, path, res.Status)
		}
	}
	forever := func(begin, more string) io.Reader {
		return io.MultiReader(strings.NewReader(begin), &repeated{text: []byte(strings.Repeat(more, 1000))})
	}
	many := func(n int, do func()) func() {
		return func() {
			var all sync.WaitGroup
			for range n {
				all.Go(do)
			}
			all.Wait()
		}
	}
	for _, h := range []struct {
		name string
		do   func()
	}{
		{"a file without end", func() {
			send(http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", forever(`{"files":[{"name":"a","content":"`, "AAAA"))
		}},
		{"several files without end", many(4, func() {
			send(http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", forever(`{"files":[{"name":"a","content":"`, "AAAA"))
		})},
		{"files without end", func() {
			send(http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", forever(`{"files":[{}`, ",{}"))
		}},
		{"brackets without end", func() { send(http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", forever(`[`, "[")) }},
		{"images without end", func() {
			send(http.MethodPost, "/apis/monopod.dev/v1alpha1/agents/self/pulls", forever(`{"images":[""`, `,""`))
		}},
		{"a path without end", func() { send(http.MethodGet, "/apis/monopod.dev/v1alpha1/"+strings.Repeat("x", 900_000), nil) }},
		{"a query without end", func() {
			send(http.MethodGet, "/apis/monopod.dev/v1alpha1/nothing?"+strings.Repeat("x&", 400_000), nil)
		}},
		{"connections that say nothing", func() {
			var conns []net.Conn
			for range 500 {
				if c, err := dial(t.Context(), "", ""); err == nil {
					_, _ = io.WriteString(c, "GET /apis/monopod.dev/v1alpha1/podreports HTTP/1.1\r\nX: "+strings.Repeat("x", 4000))
					conns = append(conns, c)
				}
			}
			if _, err := a.run("get", "pods"); err != nil {
				t.Error(err)
			}
			for _, c := range conns {
				_ = c.Close()
			}
		}},
	} {
		a.survives(h.name, h.do)
	}
}

// repeated is an endless text.
type repeated struct {
	text []byte
	at   int
}

// Read implements io.Reader.
func (r *repeated) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		c := copy(b[n:], r.text[r.at:])
		n, r.at = n+c, (r.at+c)%len(r.text)
	}
	return n, nil
}
