package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/watcher"
)

// ask sends a request to the socket and returns what it answers.
func (d *daemon) ask(path string) (code int, body string) {
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
func (d *daemon) answers(path string, code int, want string) {
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
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
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

func TestAPodOnItsWayToThePoolIsNotSeenYet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	pods, err := manifests.Load("/m/web.yaml", []byte(podYAML("web", runtimetest.ScriptServe)), manifests.Options{Source: config.SourceFile})
	if err != nil {
		t.Fatal(err)
	}
	b := newBoard()
	b.rollouts = rollout.New(rollout.Config{Log: slog.New(slog.DiscardHandler), Clock: boottime.Now})
	pool := runner.NewPool(runtimetest.NewFake(), runner.Config{NodeName: "node"})
	b.publish(watcher.Desired{Pods: pods})
	var all errgroup.Group
	all.Go(func() error { return pool.Run(ctx) })
	all.Go(func() error { return b.attach(ctx, pool, nil) })
	t.Cleanup(func() {
		cancel()
		_ = all.Wait()
	})
	soon(t, "the runtime's pods are known", func() bool { p, _ := b.running(); return p != nil && pool.Seen() })
	if b.haveSeen() == nil {
		t.Error("a pod counts as seen that the pool has not heard of")
	}
	all.Go(func() error { return b.rollouts.Run(ctx) })
	soon(t, "the pod is looked at", func() bool { return b.haveSeen() == nil })
}

func TestADaemonWithoutRuntimeIsAliveAndNotReady(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, `staticPodURL: "http://127.0.0.1:1/none"`)
	opening := errors.New("no containerd")
	d.prog.machine.open = func(context.Context, *config.Loaded, *slog.Logger) (Runtime, error) { return nil, opening }
	d.start()
	d.answers("/readyz", 500, "[-]runtime failed: no containerd\n[-]sources failed: source http has not been read yet\n[-]podsseen failed: no containerd\n[+]store ok\n")
	d.answers("/livez", 200, "ok")
}

func TestADirectoryThatCannotBeWrittenIsTold(t *testing.T) {
	if err := writable(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := writable("/proc"); err == nil || !strings.Contains(err.Error(), "file system is full") {
		t.Errorf("error %v", err) // it has no blocks
	}
	if err := writable("/no/such/directory"); err == nil {
		t.Error("no error of what is not there")
	}
}
