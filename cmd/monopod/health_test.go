package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

// ask sends a request to the socket and returns what it answers.
func (d *testDaemon) ask(path string) (code int, body string) {
	d.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", d.path("run", "monopod.sock"))
	}}}
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://monopod"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", path, err, d.log)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// answers waits for an answer that has a text in it.
func (d *testDaemon) answers(path string, code int, want string) {
	d.t.Helper()
	d.eventually(path, func() error {
		if got, body := d.ask(path); got != code || !strings.Contains(body, want) {
			return fmt.Errorf("%d %s, want %d %s", got, body, code, want)
		}
		return nil
	})
}

func TestTheDaemonTellsHowItIs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	const live = "[+]ping ok\n[+]podloop ok\n[+]sourceloop ok\n[+]revisionloop ok\n[+]drainloop ok\n"
	d.answers("/readyz?verbose", 200, live+"[+]runtime ok\n[+]sources ok\n[+]podsseen ok\n[+]store ok\nreadyz check passed\n")
	d.answers("/healthz", 200, "ok")
	d.answers("/healthz/sources", 200, "ok")
	d.answers("/livez?verbose", 200, live+"livez check passed\n")
	d.fake.Blind(errors.New("no answer"))
	d.answers("/readyz", 500, live+"[-]runtime failed: no answer\n")
	d.answers("/livez", 200, "ok")
	d.answers("/readyz?exclude=runtime", 200, "ok")
	d.fake.Blind(nil)
	d.answers("/readyz", 200, "ok")
}

func TestADaemonWithoutRuntimeIsAliveAndNotReady(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, `staticPodURL: "http://127.0.0.1:1/none"`)
	opening := errors.New("no containerd")
	d.prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return nil, opening
	}
	d.start()
	d.answers("/readyz", 500, "[-]runtime failed: no containerd\n[-]sources failed: source http has not been read yet\n[-]podsseen failed: no containerd\n[+]store ok\n")
	d.answers("/livez", 200, "ok")
}
