package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
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
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/client"
)

// porter lets in who says the word, and notes what they have said.
func porter(said *atomic.Value) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		said.Store(r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`)
	}
}

// asks asks for a node as the user of a kubeconfig.
func asks(ctx context.Context, t *testing.T, kubeconfig string) error {
	t.Helper()
	c, err := client.Open(kubeconfig, "test", quiet())
	if err != nil {
		return err
	}
	defer c.Close()
	var n corev1.Node
	err = c.Do(ctx, client.Request{Method: http.MethodGet, API: client.CoreAPI, Resource: "nodes", Name: "n1", Into: &n})
	if err == nil && n.Name != "n1" {
		err = fmt.Errorf("it got %+v", n)
	}
	return err
}

// as is a kubeconfig for another user of the same server.
func as(t *testing.T, kubeconfig, cluster, user string) string {
	t.Helper()
	c, err := client.ReadKubeconfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return writeKubeconfig(t, "{server: '"+c.Host+"', certificate-authority: "+c.CAFile+cluster+"}", user)
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
}

func TestUsersOfKubeconfigs(t *testing.T) {
	var said atomic.Value
	server := liar(t, porter(&said))
	credential := `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-the-plugin"}}`
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := script(t, "echo '"+credential+"'")
	for user, want := range map[string]string{
		"{token: written}":                  "Bearer written",
		"{tokenFile: " + token + "}":        "Bearer of-the-file",
		"{username: ada, password: secret}": "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:secret")),
		"{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: " + plugin + "}}": "Bearer of-the-plugin",
	} {
		if err := asks(t.Context(), t, as(t, server, "", user)); err != nil {
			t.Errorf("%s: %v", user, err)
		}
		if got := said.Load(); got != want {
			t.Errorf("%s: it says %v", user, got)
		}
	}
}

func TestWhatIsSaidToAServerIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	body := `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n1"},"data":{"pass":"aHVzaA=="}}`
	for _, code := range []int{200, 403} {
		server := liar(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Warning", `299 - "hush"`)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
		c, err := client.Open(server, "test", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if err != nil {
			t.Fatal(err)
		}
		var s corev1.Secret
		err = c.Do(t.Context(), client.Request{Method: http.MethodPost, API: client.CoreAPI, Namespace: "x", Resource: "secrets", Body: &corev1.Secret{StringData: map[string]string{"a": "hush"}}, Into: &s})
		if (err == nil) != (code == 200) {
			t.Error(err)
		}
		c.Close()
	}
	if text := log.String(); strings.Contains(text, "hush") || strings.Contains(text, "aHVzaA") {
		t.Error(text)
	}
}

func TestNobodyWaitsForAPluginThatDoesNotEnd(t *testing.T) {
	var said atomic.Value
	hold := filepath.Join(t.TempDir(), "hold") // it goes with the test
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := filepath.Join(t.TempDir(), "began")
	hangs := script(t, "touch "+began+"\nwhile [ -e "+hold+" ]; do sleep 0.05; done\nexit 1")
	config := as(t, liar(t, porter(&said)), "", "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: "+hangs+"}}")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- asks(ctx, t, config) }()
	eventually(t, "the plug-in runs", func() error { _, err := os.Stat(began); return err })
	cancel()
	if err := <-done; !errors.Is(err, client.ErrWaiting) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := said.Load(); got != nil {
		t.Errorf("it has said %v", got)
	}
}

func TestNoMoreThanSomeWaitForAPlugin(t *testing.T) {
	end := make(chan struct{})
	p := client.NewPatient(roundTrip(func(*http.Request) (*http.Response, error) { <-end; return nil, errors.New("ended") }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 * client.MaxWaiting {
		_, err := p.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "https://x", nil)) //nolint:bodyclose // there is none
		if !errors.Is(err, client.ErrWaiting) || errors.Is(err, context.Canceled) != (i < client.MaxWaiting) {
			t.Fatal(i, err)
		}
	}
	close(end)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func TestTheProxyOfAKubeconfig(t *testing.T) {
	var said atomic.Value
	var through atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		through.Add(1)
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, buf); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(proxy.Close)
	if _, err := url.Parse(proxy.URL); err != nil {
		t.Fatal(err)
	}
	if err := asks(t.Context(), t, as(t, liar(t, porter(&said)), ", proxy-url: '"+proxy.URL+"'", "{token: x}")); err != nil {
		t.Error(err)
	}
	if through.Load() != 1 {
		t.Errorf("the proxy was asked %d times", through.Load())
	}
}

func TestEventsOfAWatchAreBoundedOneByOne(t *testing.T) {
	event := `{"type":"ADDED","object":{"a":["}\"]",{"b":"{"}]}}` + "\n"
	all := strings.Repeat(event, 60_000) // more than an answer may have
	began := time.Now().Add(-time.Hour)  // it waits for nobody
	read := func(text string) error {
		f := &client.Frames{Ctx: t.Context(), R: strings.NewReader(text), Began: began}
		buf := make([]byte, 512)
		for {
			f.Count = 0
			if _, err := f.Read(buf); err != nil {
				return err
			}
		}
	}
	if err := read(all); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for _, text := range []string{strings.Repeat(" \n", client.MaxAnswer), `{"a":` + strings.Repeat("\n", client.MaxAnswer+1000), `"` + strings.Repeat(`\"`, client.MaxAnswer)} {
		if err := read(text); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%s...: %v", text[:5], err)
		}
	}
}
