package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/localapi"
	"monopod/node/localclient"
)

// shelf is an Applier that records requests and returns prepared answers.
type shelf struct {
	applied []localapi.ApplyRequest
	deleted []localapi.DeleteRequest
	err     error
}

func (s *shelf) Apply(_ context.Context, r localapi.ApplyRequest) (localapi.ApplyResult, error) {
	s.applied = append(s.applied, r)
	return localapi.ApplyResult{Objects: []localapi.AppliedObject{{ObjectRef: localapi.ObjectRef{Kind: "Pod", Namespace: "default", Name: "web"}, Verdict: localapi.Created}}}, s.err
}

func (s *shelf) Delete(_ context.Context, r localapi.DeleteRequest) (localapi.ApplyResult, error) {
	s.deleted = append(s.deleted, r)
	return localapi.ApplyResult{Objects: []localapi.AppliedObject{{ObjectRef: r.Objects[0], Verdict: localapi.Deleted}}}, s.err
}

func TestDocumentsReachTheApplierAsTheyWere(t *testing.T) {
	s := &shelf{}
	c, _ := serve(t, &machine{applier: s})
	want := localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "a.yaml", Content: []byte("\xff\x00 any bytes")}}, DryRun: true}
	got, err := c.Apply(t.Context(), want)
	if err != nil || len(got.Objects) != 1 || got.Objects[0].String() != "pod/web" || got.Objects[0].Verdict != localapi.Created {
		t.Errorf("%+v %v", got, err)
	}
	del := localapi.DeleteRequest{Objects: []localapi.ObjectRef{{Kind: "Secret", Namespace: "x", Name: "s"}}}
	gone, err := c.Delete(t.Context(), del)
	if err != nil || gone.Objects[0].String() != "secret/s in x" {
		t.Errorf("%+v %v", gone, err)
	}
	if diff := cmp.Diff([]localapi.ApplyRequest{want}, s.applied) + cmp.Diff([]localapi.DeleteRequest{del}, s.deleted); diff != "" {
		t.Error(diff)
	}
}

func TestWhyNothingWasApplied(t *testing.T) {
	s := &shelf{}
	c, _ := serve(t, &machine{applier: s})
	for _, tt := range []struct {
		err  error
		is   func(error) bool
		says string
	}{
		{Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, []string{"a.yaml:1: one", "a.yaml:2: two"}), apierrors.IsInvalid, "a.yaml:1: one\na.yaml:2: two"},
		{Refusal(http.StatusConflict, metav1.StatusReasonConflict, []string{"x"}), apierrors.IsConflict, "x"},
		{fmt.Errorf("store: %w", syscall.ENOSPC), func(err error) bool { return code(err) == http.StatusInsufficientStorage }, "store: no space left on device"},
		{errors.New("surprise"), apierrors.IsInternalError, "surprise"},
	} {
		s.err = tt.err
		if _, err := c.Apply(t.Context(), localapi.ApplyRequest{}); !tt.is(err) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v became %v", tt.err, err)
		}
	}
}

// asRoot is the context of a connection that root has made.
func asRoot(t *testing.T) context.Context {
	t.Helper()
	return context.WithValue(t.Context(), peerKey{}, uint32(0))
}

func TestNobodyKnownMayChangeAnything(t *testing.T) {
	s := &shelf{}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", strings.NewReader("{}"))
	(&machine{applier: s}).server().Handler().ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "your user is unknown") || len(s.applied) > 0 {
		t.Errorf("%d %s; applied %v", w.Code, w.Body, s.applied)
	}
}

func code(err error) int {
	status, _ := errors.AsType[*apierrors.StatusError](err)
	if status == nil {
		return 0
	}
	return int(status.ErrStatus.Code)
}

func TestRequestsThatCannotBeRead(t *testing.T) {
	s := &shelf{}
	h := (&machine{applier: s}).server().Handler()
	for _, body := range []string{"", "{", `{"fils": []}`, `{"files": [{"content": "not base64!"}]}`} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(asRoot(t), http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", strings.NewReader(body)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "cannot be read") {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	if len(s.applied) > 0 {
		t.Errorf("applied: %v", s.applied)
	}
}

// The socket of this test is open to others: they may read, and only root may write.
func TestOnlyRootMayChangeWhatRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it asks as another user")
	}
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "s"), 0o666)); err != nil {
		t.Fatal(err)
	}
	s := &shelf{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&machine{applier: s}).server().Run(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ask := func(method, path string) string {
		t.Helper()
		conn, err := dialAs(filepath.Join(dir, "s"), 65534)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: monopod\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", method, path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for path, method := range map[string]string{"/apis/monopod.dev/v1alpha1/agents/self/applied": "PUT", "/apis/monopod.dev/v1alpha1/agents/self/applied?": "DELETE", "/apis/monopod.dev/v1alpha1/namespaces/default/podreports/web/rollback": "POST", "/apis/monopod.dev/v1alpha1/podreports": "PATCH"} {
		if got := ask(method, path); !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "only root may change pods; you are user 65534") {
			t.Errorf("%s %s: %s", method, path, got)
		}
	}
	if got := ask("GET", "/apis/monopod.dev/v1alpha1/podreports"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Error(got)
	}
	if len(s.applied)+len(s.deleted) > 0 {
		t.Error("it was done all the same")
	}
}

// dialAs connects as another user: only the thread of a goroutine that ends with it changes hands.
func dialAs(socket string, uid int) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends too
		fd, failed := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err = failed; err != nil {
			return
		}
		f := os.NewFile(uintptr(fd), socket)
		defer f.Close()
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); no != 0 {
			err = no
			return
		}
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err == nil {
			conn, err = net.FileConn(f)
		}
	}()
	<-done
	return conn, err
}

func TestAWatchSaysWhereThePodsThatThereAreEnd(t *testing.T) {
	m := &machine{}
	m.see(errors.New("blind"), view("a", "x"))
	c, _ := serve(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		done <- c.WatchAll(ctx, func(e localclient.PodEvent) error { events <- e.Type + " " + e.Object.Name; return nil })
	}()
	want := func(text string) {
		t.Helper()
		if got := <-events; got != text {
			t.Errorf("event %q, want %q", got, text)
		}
	}
	want("ADDED x")
	// Not before all can be seen: y may be there.
	m.set(view("a", "x"), view("a", "y"))
	want("ADDED y")
	want("BOOKMARK ")
	m.set(view("a", "y"))
	want("DELETED x")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWithoutAnApplierThereIsNoSuchPath(t *testing.T) {
	s := NewServer(Config{Pods: &machine{}, Log: slog.New(slog.DiscardHandler)})
	if status, _ := ask(t, s, http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied"); status != http.StatusMethodNotAllowed {
		t.Error(status)
	}
}
