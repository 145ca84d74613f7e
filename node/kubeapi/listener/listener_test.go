package listener_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/listener"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a server under test, whose handler answers with the user.
type site struct {
	t    *testing.T
	addr string
	ca   *authority.Authority
	// now is the clock of the authority, which the server reads, too.
	now atomic.Pointer[time.Time]
}

func serve(t *testing.T, edit func(*listener.Config)) *site {
	t.Helper()
	s := &site{t: t}
	s.now.Store(new(time.Now()))
	s.ca = authority.New(authority.Config{
		Dir: filepath.Join(t.TempDir(), "api"), Now: func() time.Time { return *s.now.Load() },
		Names: func() ([]string, []netip.Addr) { return []string{"edge-1"}, nil },
	})
	cfg := listener.Config{Authority: s.ca, Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := access.UserOf(r.Context())
		fmt.Fprintf(w, "%s %v", u.Name, u.Groups)
	})}
	if edit != nil {
		edit(&cfg)
	}
	server, err := listener.New(cfg)
	check(t, err)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
	})
	return s
}

// client returns a client that trusts the authority, with a certificate for a user, or none.
func (s *site) client(user string, groups ...string) *http.Client {
	s.t.Helper()
	bundle, err := s.ca.Bundle()
	check(s.t, err)
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "edge-1"}
	conf.RootCAs.AppendCertsFromPEM(bundle)
	if user != "" {
		cert, key, err := s.ca.Client(user, groups)
		check(s.t, err)
		pair, err := tls.X509KeyPair(cert, key)
		check(s.t, err)
		conf.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
}

// ask returns the code and the body of an answer, or the error.
func (s *site) ask(c *http.Client, headers ...string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.addr+"/version", nil)
	check(s.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { check(s.t, res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	check(s.t, err)
	return fmt.Sprint(res.StatusCode, " ", string(body))
}

func TestWhoIsServed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	check(t, os.WriteFile(file, []byte("0123456789abcdef,ci,7,\"ops,monopod:view\"\n"), 0o600))
	s := serve(t, func(c *listener.Config) { c.Tokens = listener.TokenFile(file, c.Log) })
	open := serve(t, func(c *listener.Config) { c.Anonymous = true })
	other := serve(t, nil)
	wrong := s.client("")
	wrong.Transport.(*http.Transport).TLSClientConfig.Certificates = other.client("alice").Transport.(*http.Transport).TLSClientConfig.Certificates
	for name, tt := range map[string]struct {
		at      *site
		client  *http.Client
		headers []string
		want    string
	}{
		"a certificate":                {s, s.client("alice", "monopod:view"), nil, "200 alice [monopod:view system:authenticated]"},
		"a token":                      {s, s.client(""), []string{"Authorization: Bearer 0123456789abcdef"}, "200 ci [ops monopod:view system:authenticated]"},
		"an unknown token":             {s, s.client(""), []string{"Authorization: Bearer 0123456789abcdeX"}, "401 "},
		"a password":                   {s, s.client(""), []string{"Authorization: Basic YTpi"}, "401 "},
		"nobody":                       {s, s.client(""), nil, "401 "},
		"a certificate of others":      {s, wrong, nil, "401 "},
		"nobody, where it is allowed":  {open, open.client(""), nil, "200 system:anonymous [system:unauthenticated]"},
		"a token, where there is none": {open, open.client(""), []string{"Authorization: Bearer 0123456789abcdef"}, "401 "},
		"impersonation by an admin":    {s, s.client("root", "system:masters"), []string{"Impersonate-User: alice"}, "403 "},
		"impersonation of a group":     {s, s.client("root", "system:masters"), []string{"impersonate-group: ops"}, "403 "},
		"a client without the CA":      {s, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, nil, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.at.ask(tt.client, tt.headers...); !strings.Contains(got, tt.want) {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestCertificatesExpire: the listener compares with the real clock, so the authority issues in the past.
func TestCertificatesExpire(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.now.Store(new(time.Now().Add(-authority.ValidClient - time.Minute)))
	if got := s.ask(s.client("alice")); !strings.HasPrefix(got, "401 ") {
		t.Skipf("the clock of this machine is wrong: %s", got) // before 2026, nothing is issued in the past
	}
	s.now.Store(new(time.Now().Add(-authority.ValidClient + time.Hour)))
	if got := s.ask(s.client("alice")); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c := s.client("alice")
		conf := c.Transport.(*http.Transport).TLSClientConfig
		conf.MinVersion, conf.MaxVersion = version, version
		if got := s.ask(c); strings.HasPrefix(got, "200 ") != ok {
			t.Errorf("%s: %s", tls.VersionName(version), got)
		}
	}
}

func TestConnectionsOfThisMachineMayBeAll(t *testing.T) {
	t.Parallel()
	const limit = 6
	s := serve(t, func(c *listener.Config) { c.MaxConnections = limit })
	conf := s.client("alice").Transport.(*http.Transport).TLSClientConfig
	for range limit {
		c, err := tls.Dial("tcp", s.addr, conf)
		check(t, err)
		defer func() { check(t, c.Close()) }()
	}
	if c, err := tls.Dial("tcp", s.addr, conf); err == nil {
		check(t, c.Close())
		t.Error("there is no limit")
	}
}

func TestADamagedAuthorityKeepsItFromServing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("rubbish"), 0o600))
	if _, err := listener.New(listener.Config{Authority: authority.New(authority.Config{Dir: dir})}); err == nil || !strings.Contains(err.Error(), "ca.pem") {
		t.Error(err)
	}
}

func TestStreamsHaveNoTimeLimit(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/api/v1/pods":                                               false,
		"/api/v1/pods?watch=true":                                    true,
		"/api/v1/pods?watch=1":                                       true,
		"/api/v1/pods?watch=false":                                   false,
		"/api/v1/namespaces/a/pods/p/log":                            true,
		"/api/v1/namespaces/a/pods/p/log?follow=true":                true,
		"/api/v1/namespaces/a/pods/p/exec":                           true,
		"/api/v1/namespaces/a/pods/p/attach":                         true,
		"/api/v1/namespaces/a/pods/p/portforward":                    true,
		"/api/v1/namespaces/a/pods/p/proxy/x/y":                      true,
		"/api/v1/nodes/n/proxy/metrics":                              true,
		"/api/v1/namespaces/log/pods":                                false,
		"/api/v1/namespaces/a/configmaps/exec":                       false,
		"/api/v1/namespaces/a/pods/exec":                             false,
		"/version":                                                   false,
		"/apis/apps/v1/namespaces/a/deployments/d/scale":             false,
		"/apis/apps/v1/namespaces/exec/deployments/proxy":            false,
		"/apis/monopod.dev/v1alpha1/agents/self/pulls":               true,
		"/apis/monopod.dev/v1alpha1/namespaces/a/podreports/p/files": true,
		"/apis/monopod.dev/v1alpha1/agents/self/applied":             false,
	} {
		if got := listener.LongRunning(httptest.NewRequest(http.MethodGet, path, nil)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	upgrade := httptest.NewRequest(http.MethodGet, "/x", nil)
	upgrade.Header.Set("Upgrade", "websocket")
	if !listener.LongRunning(upgrade) {
		t.Error("an upgrade is no stream")
	}
}

func TestNobodyIsServedWithoutAuthentication(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	listener.WithUser(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is served") })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api", nil))
}
