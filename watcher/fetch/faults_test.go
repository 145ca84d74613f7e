package fetch

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"monopod/internal/loopback"
	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// The tests of this file are faults of a source that has been good once: whatever it does, nothing that it said
// before is touched, and the next good answer counts.

// survives reads a good source, breaks it until the report has the reason, and repairs it. fail breaks it and returns the repair.
func survives(t *testing.T, s *watchertest.Runner, state model.InputState, why string, fail func() (heal func())) {
	t.Helper()
	s.Wants("x=v1", model.InputAccepted)
	heal := fail()
	set := s.Until("a report of "+why, func(set watcher.Set) bool {
		return set.Inputs[0].State == state && strings.Contains(strings.Join(set.Inputs[0].Errors, "\n"), why)
	})
	if watchertest.Images(set) != "x=v1" || set.Unread {
		t.Errorf("touched: %+v", set)
	}
	heal()
	s.Until("the next good answer", func(set watcher.Set) bool {
		return watchertest.Images(set) == "x=v2" && set.Inputs[0].State == model.InputAccepted
	})
	s.NeverWithout("x")
}

func TestFaultsOfAnAnswerTouchNothing(t *testing.T) {
	const most = 512 << 10 // an answer of 10 MiB, which is what there may be elsewhere, takes its time
	bomb := zip(string(padded(most + 1)))
	if len(bomb) > most/100 {
		t.Fatalf("%d bytes are no bomb", len(bomb))
	}
	tests := map[string]struct {
		answer http.HandlerFunc
		state  model.InputState
		why    string
	}{
		"slow-loris: one byte after the other": {func(rw http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(rw, "#")
				rw.(http.Flusher).Flush()
				<-time.After(time.Millisecond)
			}
		}, model.InputUnreachable, "Client.Timeout"},
		"slow-loris: the header one byte after the other": {func(rw http.ResponseWriter, r *http.Request) {
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			for _, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: "); err == nil; _, err = io.WriteString(conn, "x") {
				<-time.After(time.Millisecond)
			}
		}, model.InputUnreachable, "makes no progress"},
		"an answer that stands still": {func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "# more to come\n")
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		}, model.InputUnreachable, "makes no progress for 100ms"},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, model.InputUnreachable, "makes no progress"},
		"a byte too much": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write(padded(most + 1))
		}, model.InputRefused, "larger than 512 KiB"},
		"a byte too much of unknown length": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write(padded(most))
			rw.(http.Flusher).Flush()
			_, _ = rw.Write([]byte("#"))
		}, model.InputRefused, "larger than 512 KiB"},
		"a small answer that unpacks to too much": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write(bomb)
		}, model.InputRefused, "larger than 512 KiB"},
		"headers without end": {func(rw http.ResponseWriter, _ *http.Request) {
			for i := range 1000 {
				rw.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		}, model.InputUnreachable, "exceeded"},
		"an empty body": {text(""), model.InputRefused, "empty"},
		"a web page":    {raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p>\n"), model.InputRefused, "web page"},
		"a web page without type": {func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/yaml")
			text("<!DOCTYPE html>\n<html><body>Log in</body></html>\n")(rw, r)
		}, model.InputRefused, "an object like a Pod"},
		"a truncated body":       {raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + podYAML("x", "v3")), model.InputUnreachable, "unexpected EOF"},
		"an error of the client": {status(403), model.InputUnreachable, "403"},
		"an error of the server": {status(502), model.InputUnreachable, "502"},
		"a redirect to another host": {
			http.RedirectHandler("http://localhost:1/", http.StatusMovedPermanently).ServeHTTP, model.InputUnreachable, "leads to another host",
		},
		"no manifests": {text("- 1\n- 2\n"), model.InputRefused, "expected an object"},
		"zero bytes":   {text(string(make([]byte, 4096))), model.InputRefused, "zero bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := newWebServer(t, text(podYAML("x", "v1")))
			s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) {
				c.MaxSize = most
				if tt.why == "Client.Timeout" {
					c.Timeout = 300 * time.Millisecond
				}
				if strings.Contains(tt.why, "no progress") {
					c.Stall = 100 * time.Millisecond
				}
			})
			survives(t, s, tt.state, tt.why, func() func() {
				web.answer(tt.answer)
				return func() { web.answer(text(podYAML("x", "v2"))) }
			})
		})
	}
}

// padded is a valid answer of n bytes.
func padded(n int) []byte {
	pod := podYAML("x", "v2") + "#"
	return append([]byte(pod), bytes.Repeat([]byte{'x'}, n-len(pod))...)
}

func TestAnAnswerOfTheLargestSizeIsTaken(t *testing.T) {
	pod := "pod x v2\n# "
	body := pod + strings.Repeat("x", watcher.MaxInput-len(pod))
	web := newWebServer(t, text(body))
	askOften(t, web.URL).Until("x", func(set watcher.Set) bool { return watchertest.Images(set) == "x=v2" })
	small := askOften(t, web.URL, func(c *HTTPConfig) { c.MaxSize = 512 << 10 })
	small.Until("a refusal", func(set watcher.Set) bool {
		return watchertest.StateOf(set, web.URL) == model.InputRefused && strings.Contains(set.Inputs[0].Errors[0], "larger than 512 KiB")
	})
}

func TestAFlappingServerTouchesNothing(t *testing.T) {
	var n atomic.Int64
	bad := []http.HandlerFunc{
		status(500), text(""), raw(""), raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + podYAML("x", "v3")),
		text("<html></html>"), status(404), text(podYAML("x", "v3") + "---\nkind: Pod\n"),
	}
	good := text(podYAML("x", "v1") + podYAML("w", "v1"))
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		i := n.Add(1) - 1
		if i%2 == 0 {
			good(rw, r)
			return
		}
		bad[int(i/2)%len(bad)](rw, r)
	})
	s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) { c.Atomic = true })
	s.Wants("x=v1 w=v1", model.InputAccepted)
	s.WaitFor("every fault, twice", func() bool { return n.Load() > int64(4*len(bad)) })
	for _, set := range s.History() {
		if watchertest.Images(set) != "x=v1 w=v1" {
			t.Fatalf("touched: %+v", set)
		}
	}
}

func TestAServerThatIsGoneTouchesNothing(t *testing.T) {
	web := newWebServer(t, text(podYAML("x", "v1")))
	address := web.Listener.Addr().String()
	s := askKept(t, web.URL, t.TempDir())
	survives(t, s, model.InputUnreachable, "connection refused", func() func() {
		web.Close()
		return func() {
			again := unstartedWebServer(text(podYAML("x", "v2")))
			watchertest.Must(t, again.Listener.Close())
			again.Listener = loopback.Again(t, address)
			again.Start()
			t.Cleanup(again.Close)
		}
	})
}

func TestFaultsOfTLSTouchNothing(t *testing.T) {
	now := time.Now()
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.pair(now.Add(-time.Hour), now.Add(time.Hour))
	tests := map[string]struct {
		cert  tls.Certificate
		clock time.Time
		why   string
	}{
		"an expired certificate":             {cert: ours.pair(now.Add(-48*time.Hour), now.Add(-24*time.Hour)), why: "expired on"},
		"a certificate of tomorrow":          {cert: ours.pair(now.Add(24*time.Hour), now.Add(48*time.Hour)), why: "is not valid before"},
		"a certificate of another authority": {cert: theirs.pair(now.Add(-time.Hour), now.Add(time.Hour)), why: "unknown authority"},
		"the clock in 1970":                  {cert: good, clock: time.Unix(3, 0), why: "the clock of this machine shows 1970-01-01; set the clock"},
		"the clock in 2106":                  {cert: good, clock: time.Unix(1<<32, 0), why: "renew the certificate, or set the clock"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var shown atomic.Pointer[tls.Certificate]
			shown.Store(&good)
			web := tlsServer(t, text(podYAML("x", "v1")), &tls.Config{
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
					return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
				},
			})
			web.Config.SetKeepAlivesEnabled(false) // each request shakes hands
			var clock atomic.Pointer[time.Time]
			right := now
			clock.Store(&right)
			s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) {
				c.Trust.CAFile = ours.file(t.TempDir())
				c.Now = func() time.Time { return *clock.Load() }
			})
			survives(t, s, model.InputUnreachable, tt.why, func() func() {
				shown.Store(&tt.cert)
				if !tt.clock.IsZero() {
					clock.Store(&tt.clock)
				}
				web.answer(text(podYAML("x", "v2")))
				return func() { shown.Store(&good); clock.Store(&right) }
			})
			if n := len(s.History()); n > 5 {
				t.Errorf("%d sets for one failure: the reason changes", n)
			}
		})
	}
}

func TestAServerThatSpeaksNoTLSTouchesNothing(t *testing.T) {
	plain := newWebServer(t, text(podYAML("x", "v1")))
	s := askKept(t, "https://"+plain.Listener.Addr().String(), t.TempDir())
	set := s.Until("a report", func(set watcher.Set) bool { return len(set.Inputs) == 1 })
	if !set.Unread || !strings.Contains(set.Inputs[0].Errors[0], "HTTP response to HTTPS client") {
		t.Errorf("%+v", set)
	}
}

func TestRenewedFilesCountAtTheNextRequest(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	server, clients := newAuthority(t), newAuthority(t)
	pool := clients.pool()
	web := tlsServer(t, func(rw http.ResponseWriter, r *http.Request) {
		text(podYAML("x", "v"+r.TLS.PeerCertificates[0].SerialNumber.String()))(rw, r)
	}, &tls.Config{Certificates: []tls.Certificate{server.pair(now.Add(-time.Hour), now.Add(time.Hour))}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	renew := func(n int64) {
		c, k := clients.leaf(n, now.Add(-time.Hour), now.Add(time.Hour))
		watchertest.Replace(t, key, string(k))
		watchertest.Replace(t, cert, string(c))
	}
	renew(1)
	s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) {
		c.Trust = Trust{CAFile: server.file(dir), CertFile: cert, KeyFile: key}
	})
	s.Wants("x=v1", model.InputAccepted)
	renew(2)
	s.Wants("x=v2", model.InputAccepted)
	watchertest.Must(t, os.Remove(cert))
	s.Wants("x=v2", model.InputUnreachable)
	renew(3)
	s.Wants("x=v3", model.InputAccepted)
	watchertest.Write(t, filepath.Join(dir, "ca.pem"), "no certificate\n")
	set := s.Wants("x=v3", model.InputUnreachable)
	if !strings.Contains(set.Inputs[0].Errors[0], "contains no certificate in PEM") {
		t.Errorf("%+v", set.Inputs)
	}
	newAuthority(t).file(dir)
	s.Until("another reason", func(set watcher.Set) bool { return strings.Contains(set.Inputs[0].Errors[0], "unknown authority") })
	server.file(dir)
	s.Wants("x=v3", model.InputAccepted)
	s.NeverWithout("x")
}
