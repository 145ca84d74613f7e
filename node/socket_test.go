package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/model"
	"monopod/node/localclient"
)

// serve runs a server on a real socket and returns a client and the way to stop it.
func serve(t *testing.T, m *machine) (*localclient.Client, func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp") // names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := Listen(filepath.Join(dir, "sub", "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := m.server()
	s.grace = time.Hour // who would be waited for holds the test up
	go func() { done <- s.Run(ctx, ln) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return localclient.New(filepath.Join(dir, "sub", "s")), stop
}

func TestTheClientSeesWhatTheServerHas(t *testing.T) {
	m := &machine{inputs: []model.Input{{Source: "file"}}}
	m.set(view("a", "x", "c running"), view("b", "y"))
	m.readLog = func(_ context.Context, q LogQuery, w io.Writer) error {
		fmt.Fprintf(w, "tail %d\n", q.Tail)
		return nil
	}
	c, _ := serve(t, m)
	list, err := c.Pods(t.Context(), "")
	if err != nil || len(list.Items) != 2 {
		t.Errorf("pods: %v %v", list, err)
	}
	pod, err := c.Pod(t.Context(), "a", "x")
	if err != nil || pod.Name != "x" {
		t.Errorf("pod: %v %v", pod, err)
	}
	if _, err := c.Pod(t.Context(), "a", "no such/pod"); !apierrors.IsNotFound(err) {
		t.Errorf("missing pod: %v", err)
	}
	inputs, err := c.Inputs(t.Context())
	if err != nil || len(inputs) != 1 {
		t.Errorf("inputs: %v %v", inputs, err)
	}
	body, err := c.Log(t.Context(), "a", "x", url.Values{"tailLines": {"3"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(body)
	body.Close()
	if string(b) != "tail 3\n" || err != nil {
		t.Errorf("log: %q %v", b, err)
	}
}

func TestAWatchGoesOnUntilTheServerOrTheClientEndsIt(t *testing.T) {
	m := &machine{}
	m.set(view("a", "x"), view("a", "y"))
	c, stop := serve(t, m)
	events := make(chan string, 10)
	each := func(e localclient.PodEvent) error { events <- e.Type + " " + e.Object.Name; return nil }
	watch := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() { done <- c.Watch(ctx, "a", "x", each) }()
		if got := <-events; got != "ADDED x" {
			t.Errorf("first event is %s", got)
		}
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := watch(ctx)
	m.set(view("a", "y"))
	if got := <-events; got != "DELETED x" {
		t.Errorf("second event is %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended by the client: %v", err)
	}
	m.subscriptions(t, 0)
	m.set(view("a", "x", "c running"))
	done = watch(t.Context())
	m.readLog = func(ctx context.Context, _ LogQuery, w io.Writer) error {
		_, err := io.WriteString(w, "line\n")
		<-ctx.Done()
		return err
	}
	log, err := c.Log(t.Context(), "a", "x", url.Values{"follow": {"true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := stop(); err != nil { // it waits for neither
		t.Errorf("server: %v", err)
	}
	if b, err := io.ReadAll(log); err != nil || string(b) != "line\n" {
		t.Errorf("log: %q %v", b, err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "monopod has exited") {
		t.Errorf("ended by the server: %v", err)
	}
	if err := c.Watch(t.Context(), "", "", each); err == nil {
		t.Error("a watch without a server does not fail")
	}
}

func TestListenReplacesOnlyWhatNobodyUses(t *testing.T) {
	dir, err := os.MkdirTemp("", "mp") // names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "s")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another process answers on it") {
		t.Errorf("a live socket is replaced: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v %v", info, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays after Close: %v", err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	again, err := Listen(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	_ = again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "a file of another type") {
		t.Errorf("a file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file was touched: %q %v", b, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".s*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := Listen(filepath.Join(dir, strings.Repeat("x", 300))); err == nil {
		t.Error("a name that is too long is accepted")
	}
}

func TestConnectErrorsSayWhatToDo(t *testing.T) {
	for want, err := range map[string]error{
		"is monopod running? Start it with `monopod run`": os.ErrNotExist,
		"only root may use monopod, try sudo":             os.ErrPermission,
		"no daemon answers on /s (refused)":               errors.New("refused"),
	} {
		e := &localclient.ConnectError{Socket: "/s", Err: err}
		if !strings.Contains(e.Error(), want) || !errors.Is(e, err) {
			t.Errorf("%v", e)
		}
	}
}
