package run

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
	"monopod/internal/daemontest/clitest"
	"monopod/runner/runtimetest"
)

// ask sends a request to the socket and returns what it answers.
func ask(d *clitest.Daemon, path string) (code int, body string) {
	d.T.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", d.Path("run", "monopod.sock"))
	}}}
	req, err := http.NewRequestWithContext(d.T.Context(), http.MethodGet, "http://monopod"+path, nil)
	if err != nil {
		d.T.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		d.T.Fatalf("%s: %v\n%s", path, err, d.Log)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.T.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// answers waits for an answer that has a text in it.
func answers(d *clitest.Daemon, path string, code int, want string) {
	d.T.Helper()
	d.Eventually(path, func() error {
		if got, body := ask(d, path); got != code || !strings.Contains(body, want) {
			return fmt.Errorf("%d %s, want %d %s", got, body, code, want)
		}
		return nil
	})
}

func TestTheDaemonTellsHowItIs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	const live = "[+]ping ok\n[+]podloop ok\n[+]sourceloop ok\n[+]revisionloop ok\n[+]drainloop ok\n"
	answers(d, "/readyz?verbose", 200, live+"[+]runtime ok\n[+]sources ok\n[+]podsseen ok\n[+]store ok\nreadyz check passed\n")
	answers(d, "/healthz", 200, "ok")
	answers(d, "/healthz/sources", 200, "ok")
	answers(d, "/livez?verbose", 200, live+"livez check passed\n")
	d.Fake.Blind(errors.New("no answer"))
	answers(d, "/readyz", 500, live+"[-]runtime failed: no answer\n")
	answers(d, "/livez", 200, "ok")
	answers(d, "/readyz?exclude=runtime", 200, "ok")
	d.Fake.Blind(nil)
	answers(d, "/readyz", 200, "ok")
}

func TestADaemonWithoutRuntimeIsAliveAndNotReady(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, `staticPodURL: "http://127.0.0.1:1/none"`)
	opening := errors.New("no containerd")
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return nil, opening
	}
	d.Start()
	answers(d, "/readyz", 500, "[-]runtime failed: no containerd\n[-]sources failed: source http has not been read yet\n[-]podsseen failed: no containerd\n[+]store ok\n")
	answers(d, "/livez", 200, "ok")
}
