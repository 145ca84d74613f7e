//go:build e2e

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

// site is an HTTPS server of manifests that can be stopped and started again at the same address.
type site struct {
	t       *testing.T
	server  *httptest.Server
	address string
	handler atomic.Pointer[http.HandlerFunc]
	// shown is the certificate used instead of that of httptest.
	shown atomic.Pointer[tls.Certificate]
}

// newSite starts a site. It must be created before the instance that uses it, whose cleanup needs it.
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
	s.server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if cert := s.shown.Load(); cert != nil {
			return &tls.Config{Certificates: []tls.Certificate{*cert}}, nil
		}
		return nil, nil //nolint:nilnil // which means: as it was configured
	}}
	s.server.StartTLS()
}

func (s *site) answers(h http.HandlerFunc) { s.handler.Store(&h) }

func (s *site) says(text string) {
	s.answers(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) })
}

// authority writes the CA certificate of the site into a file.
func (s *site) authority(path string) {
	s.t.Helper()
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// asking returns an instance whose manifests come only from the site.
func (s *site) asking() *instance {
	s.t.Helper()
	ca := filepath.Join(s.t.TempDir(), "ca.pem")
	s.authority(ca)
	in := newInstance(s.t, fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s}]", "https://"+s.address+"/pods.yaml", ca))
	s.t.Cleanup(func() { s.says("# nothing any more\n") }) // before the cleanup of the instance
	return in
}

// reports waits until the output of `get sources` contains want, and returns it.
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
	in.eventually("it greets once in each run whose log is kept", func() error {
		out, err := in.run("logs", "greeter")
		if err == nil && out != "hello\nhello\n" && out != "hello\n" {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	said := in.reports("connection refused")
	if !strings.Contains(said, "this is the cached answer of ") {
		t.Errorf("get sources:\n%s", said)
	}
	before := containerID(in.ready("plain"), "c")

	site.says(strings.Join([]string{settingsOfFleet, greeter, sleeper("plain", ":"), sleeper("new", ":")}, "---\n"))
	site.open()
	in.ready("new")
	if after := containerID(in.ready("plain"), "c"); after != before {
		t.Error("a pod that did not change was restarted when the server came back")
	}
	if said := in.reports("Accepted"); strings.Contains(said, "cached answer") {
		t.Errorf("get sources:\n%s", said)
	}

	// The cached copy was modified: it is not used, and running pods are not touched.
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
	in.reports("the cached answer is damaged and not used")
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

// input returns the report on a source.
func (in *instance) input(source string) (model.Input, error) {
	out, err := in.run("get", "sources", "-o", "json")
	if err != nil {
		return model.Input{}, err
	}
	var all []model.Input
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return model.Input{}, err
	}
	i := slices.IndexFunc(all, func(r model.Input) bool { return r.Source == source })
	if i < 0 {
		return model.Input{}, errors.New("nothing is said of " + source)
	}
	return all[i], nil
}

// tells waits for a state of a source, with a reason.
func (in *instance) tells(source string, state model.InputState, why string) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("source %s is %s: %s", source, state, why), func() error {
		r, err := in.input(source)
		if err == nil && (r.State != state || !strings.Contains(strings.Join(r.Errors, "\n"), why)) {
			err = fmt.Errorf("it is %+v", r)
		}
		return err
	})
}

// fault is a failure of a server that worked before.
type fault struct {
	name   string
	state  model.InputState
	report string
	answer http.HandlerFunc
	// do is executed instead.
	do func(s *site)
}

// cut returns an answer of raw bytes, after which the connection is closed.
func cut(text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

func saying(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, body) }
}

// slowly answers byte by byte, without ever completing the answer.
func slowly(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		for _, err = io.WriteString(conn, body); err == nil; _, err = io.WriteString(conn, "#") {
			<-time.After(10 * time.Millisecond)
		}
	}
}

// faultsOfServers are the faults of the server of source bad; elsewhere is another server.
func faultsOfServers(ours, theirs *authority, elsewhere string) []fault {
	now := time.Now()
	shows := func(a *authority, from, until time.Duration) func(s *site) {
		return func(s *site) { s.shown.Store(a.certificate(now.Add(from), now.Add(until))) }
	}
	const day = 24 * time.Hour
	var flaps atomic.Int32
	return []fault{
		{name: "gone", state: model.InputUnreachable, report: "connection refused", do: func(s *site) { s.server.Close() }},
		{name: "not-found", state: model.InputUnreachable, report: "404 Not Found", answer: http.NotFound},
		{name: "broken", state: model.InputUnreachable, report: "500 Internal Server Error", answer: func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) }},
		{name: "empty", state: model.InputRefused, report: "it is empty", answer: saying("")},
		{name: "page", state: model.InputRefused, report: "a web page", answer: saying("<html>Log in</html>")},
		{name: "truncated", state: model.InputUnreachable, report: "unexpected EOF", answer: cut("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n# and so on\n")},
		{name: "elsewhere", state: model.InputUnreachable, report: "leads to another host", answer: http.RedirectHandler("https://"+elsewhere+"/", http.StatusFound).ServeHTTP},
		{name: "typo", state: model.InputRefused, report: "unknown field", answer: saying(strings.Replace(sleeper("typo", ":"), "image:", "imige:", 1))},
		{name: "large", state: model.InputRefused, report: "larger than 10 MiB", answer: saying("# " + strings.Repeat("x", 10<<20-2) + "\n")},
		{name: "slow-body", state: model.InputUnreachable, report: "Client.Timeout", answer: slowly("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")},
		{name: "slow-header", state: model.InputUnreachable, report: "Client.Timeout", answer: slowly("HTTP/1.1 200 OK\r\nX: ")},
		{name: "expired", state: model.InputUnreachable, report: "its certificate expired on", do: shows(ours, -2*day, -day)},
		{name: "tomorrow", state: model.InputUnreachable, report: "its certificate is not valid before", do: shows(ours, day, 2*day)},
		{name: "stranger", state: model.InputUnreachable, report: "unknown authority", do: shows(theirs, -day, day)},
		{name: "flapping", state: model.InputUnreachable, report: "502 Bad Gateway", answer: func(rw http.ResponseWriter, _ *http.Request) {
			if flaps.Add(1)%2 == 0 {
				_, _ = io.WriteString(rw, named("flapping", ":", "hostNetwork: true"))
				return
			}
			rw.WriteHeader(502)
		}},
	}
}

// TestNoFaultOfAServerTouchesAPod has a source for each fault, with one pod each.
func TestNoFaultOfAServerTouchesAPod(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	other := newSite(t)
	other.says(sleeper("stolen", ":"))
	faults := faultsOfServers(ours, theirs, other.address)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	ours.write(ca)
	sites, names := map[string]*site{}, make([]string, 0, len(faults))
	var sources strings.Builder
	for _, f := range faults {
		s := newSite(t)
		s.server.Config.SetKeepAlivesEnabled(false) // each request shakes hands
		s.shown.Store(ours.certificate(time.Now().Add(-time.Hour), time.Now().Add(time.Hour)))
		s.says(named(f.name, ":", "hostNetwork: true"))
		sites[f.name] = s
		names = append(names, f.name)
		fmt.Fprintf(&sources, "\n- {name: %q, url: %q, caFile: %s, period: 1s, timeout: 2s}", f.name, "https://"+s.address+"/pods.yaml", ca)
	}
	in := newInstance(t, "sources:"+sources.String())
	t.Cleanup(func() { // before the cleanup of the instance
		for _, s := range sites {
			s.says("# nothing any more\n")
		}
	})
	in.start()
	untouched := in.untouched(names...)
	for _, f := range faults {
		s := sites[f.name]
		if f.do != nil {
			s.says(named("changed", ":", "hostNetwork: true")) // who listens to it all the same starts another pod
			f.do(s)
		} else {
			s.answers(f.answer)
		}
	}
	for _, f := range faults {
		in.tells(f.name, f.state, f.report)
	}
	in.tells("flapping", model.InputAccepted, "")
	in.tells("flapping", model.InputUnreachable, "502")
	untouched("while the servers fail")
	if all, err := in.pods(); err != nil || len(all) != len(faults) {
		t.Errorf("%d pods, %v", len(all), err)
	}
	for _, f := range faults {
		s := sites[f.name]
		s.says(named(f.name, ":", "hostNetwork: true") + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: good-again-" + f.name + "}}\n")
		s.shown.Store(ours.certificate(time.Now().Add(-time.Hour), time.Now().Add(time.Hour)))
	}
	sites["gone"].open()
	in.eventually("each server counts again", func() error {
		for _, f := range faults {
			if r, err := in.input(f.name); err != nil || r.State != model.InputAccepted || len(r.Objects) != 1 {
				return fmt.Errorf("%+v, %w", r, err)
			}
		}
		return nil
	})
	untouched("afterwards")
	sites["not-found"].says("# nothing\n")
	in.gone("not-found")
}
