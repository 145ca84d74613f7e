//go:build e2e

package e2e

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// site is an HTTPS server of manifests that can be gone, and come back at its address.
type site struct {
	t       *testing.T
	server  *httptest.Server
	address string
	handler atomic.Pointer[http.HandlerFunc]
}

// newSite starts a site. It must be made before the instance that asks it, whose cleanup needs it.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, address: "127.0.0.1:0"}
	s.says("# nothing yet\n")
	s.open()
	t.Cleanup(func() { s.server.Close() })
	return s
}

func (s *site) open() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = l.Addr().String()
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (*s.handler.Load())(rw, r) }))
	_ = s.server.Listener.Close()
	s.server.Listener = l
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.server.StartTLS()
}

func (s *site) answers(h http.HandlerFunc) { s.handler.Store(&h) }

func (s *site) says(text string) {
	s.answers(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) })
}

// authority writes the certificate that vouches for the site into a file.
func (s *site) authority(path string) {
	s.t.Helper()
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// asking is an instance whose manifests come from the site only.
func (s *site) asking() *instance {
	s.t.Helper()
	ca := filepath.Join(s.t.TempDir(), "ca.pem")
	s.authority(ca)
	in := newInstance(s.t, fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s}]", "https://"+s.address+"/pods.yaml", ca))
	s.t.Cleanup(func() { s.says("# nothing any more\n") }) // before the cleanup of the instance
	return in
}

// reports waits until `get sources` says something, and returns all it says.
func (in *instance) reports(want string) string {
	in.t.Helper()
	var out string
	in.eventually("get sources says "+want, func() (err error) {
		if out, err = in.run("get", "sources"); err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("it says\n%s", out)
		}
		return err
	})
	return out
}

const settingsOfFleet = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
`

func deploymentOf(name string) string {
	pod := sleeper(name, ":")
	_, spec, _ := strings.Cut(pod, "spec:\n")
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec:\n  selector: {matchLabels: {app: %s}}\n  template:\n    metadata: {labels: {app: %s}}\n    spec:\n%s",
		name, name, name, "      "+strings.TrimSpace(strings.ReplaceAll(spec, "\n", "\n    "))+"\n")
}

func TestABootWithoutTheServerRunsAllItsPods(t *testing.T) {
	site := newSite(t)
	in := site.asking()
	greeter := sleeper("greeter", "echo $GREETING", "    env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]")
	site.says(strings.Join([]string{settingsOfFleet, greeter, sleeper("plain", ":"), deploymentOf("many")}, "---\n"))
	in.start()
	deployed := func(all map[string]corev1.Pod) (name string) {
		for name, p := range all {
			if p.Labels["app"] == "many" && isReady(p) {
				return name
			}
		}
		return ""
	}
	all := func() {
		in.t.Helper()
		in.ready("greeter")
		in.ready("plain")
		in.eventually("the pod of the Deployment is ready", func() error {
			pods, err := in.pods()
			if err == nil && deployed(pods) == "" {
				err = fmt.Errorf("%d pods", len(pods))
			}
			return err
		})
	}
	all()
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	site.server.Close()
	in.powerCut()

	in.start()
	all()
	if out, err := in.run("logs", "greeter"); err != nil || out != "hello\nhello\n" && out != "hello\n" {
		t.Errorf("logs: %q, %v", out, err)
	}
	said := in.reports("connection refused")
	if !strings.Contains(said, "this is the copy on disk of the answer of ") {
		t.Errorf("get sources:\n%s", said)
	}
	before := containerID(in.ready("plain"), "c")

	site.says(strings.Join([]string{settingsOfFleet, greeter, sleeper("plain", ":"), sleeper("new", ":")}, "---\n"))
	site.open()
	in.ready("new")
	if after := containerID(in.ready("plain"), "c"); after != before {
		t.Error("a pod that did not change was restarted when the server came back")
	}
	if said := in.reports("Accepted"); strings.Contains(said, "copy on disk") {
		t.Errorf("get sources:\n%s", said)
	}

	// The copy is not what was written: it is not used, and what runs is not touched.
	in.kill9()
	site.server.Close()
	path := filepath.Join(in.dir, "root", "sources", "fleet", "answer")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-7], 0o600); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.reports("the copy on disk is damaged and not used")
	in.reports("connection refused")
	for _, name := range []string{"plain", "new"} {
		in.ready(name)
	}
	if after := containerID(in.ready("plain"), "c"); after != before {
		t.Error("a pod was restarted because of a damaged copy")
	}
	site.open()
	in.reports("Accepted")
}

func TestNoAnswerOfAServerTouchesAPodButAGoodOne(t *testing.T) {
	site := newSite(t)
	in := site.asking()
	site.says(sleeper("stays", ":"))
	in.start()
	before := in.ready("stays")
	other := newSite(t)
	other.says(sleeper("stolen", ":"))
	cut := func(rw http.ResponseWriter, text string) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
	faults := []struct {
		name, report string
		answer       http.HandlerFunc
	}{
		{"500", "500 Internal Server Error", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) }},
		{"an empty body", "the file is empty", func(http.ResponseWriter, *http.Request) {}},
		{"a web page", "a web page", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "<html>Log in</html>") }},
		{"a truncated body", "unexpected EOF", func(rw http.ResponseWriter, _ *http.Request) {
			cut(rw, "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n# and so on\n")
		}},
		{"a redirect", "leads to another host", http.RedirectHandler("https://"+other.address+"/", http.StatusFound).ServeHTTP},
		{"a bad pod", "unknown field", func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, strings.Replace(sleeper("stays", ":"), "image:", "imige:", 1))
		}},
	}
	for _, f := range faults {
		site.answers(f.answer)
		in.reports(f.report)
	}
	site.server.Close()
	in.reports("connection refused")
	site.open() // with a certificate of the same authority
	site.says(sleeper("stays", ":") + "---\n" + sleeper("added", ":"))
	in.ready("added")
	after := in.ready("stays")
	if before.UID != after.UID || containerID(before, "c") != containerID(after, "c") || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod was touched: %s", brief(after))
	}
	all, err := in.pods()
	if err != nil || len(all) != 2 {
		t.Errorf("%d pods, %v", len(all), err)
	}
	site.says("# nothing\n")
	in.gone("stays")
}
