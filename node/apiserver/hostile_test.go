package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/node/apiserver/client"
)

// liar is a server that answers everything as it likes, and a kubeconfig for it.
func liar(t *testing.T, answer http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return writeKubeconfig(t, "{server: '"+srv.URL+"', certificate-authority: "+ca+"}", "{token: x}")
}

func writeKubeconfig(t *testing.T, cluster, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: " + cluster + "}]\nusers: [{name: u, user: " + user + "}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flood writes the beginning, then the same piece repeatedly, until the reader closes the connection.
func flood(begin, piece string, times int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, begin)
		for i := 0; err == nil && i < times; i++ {
			_, err = io.WriteString(w, piece)
		}
	}
}

// heap is what is in use, after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

func TestMemoryIsBoundedWhateverAServerAnswers(t *testing.T) {
	pod := `{"metadata":{"name":"p","namespace":"default","uid":"1","annotations":{"kubernetes.io/config.mirror":"x","a":"` + strings.Repeat("y", 1000) + `"}},"status":{}},`
	huge := strings.Repeat("x", 1<<16)
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // what is not in use any more does not count, also when a look comes late
	for name, answer := range map[string]http.HandlerFunc{
		"a million pods":        flood(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[`, pod, 1_000_000),
		"pages without end":     flood(`{"metadata":{"continue":"more","resourceVersion":"1"},"items":[`+strings.TrimSuffix(strings.Repeat(pod, 200), ",")+`]}`, "", 0),
		"one pod without end":   flood(`{"items":[{"metadata":{"name":"`, huge, 10_000),
		"garbage":               flood("", "garbage ", 1_000_000),
		"nothing":               func(http.ResponseWriter, *http.Request) {},
		"arrays in arrays":      flood("", "[", 10_000_000),
		"500 with a long story": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); flood("", huge, 10_000)(w, r) },
		"401":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 1000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), huge[:1000])
			}
		},
		"an event of spaces": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
				return
			}
			flood(`{"type":"ADDED","object":`, strings.Repeat(" \n", 1<<15), 10_000)(w, r)
		},
		"events without end": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
				return
			}
			for i := 0; r.Context().Err() == nil; i++ {
				if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"metadata":{"name":"p%d","namespace":"default","uid":"1","resourceVersion":"%d"}}}`, i, i); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := atomic.Int32{}
			pods := newBoard(running("web"))
			cfg := config(t, liar(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); answer(w, r) }), pods)
			before := heap()
			stop := start(t, cfg)
			// One value of 2 MiB, twice while its buffer grows, for each of the two feeds, and what the server itself holds.
			most := uint64(0)
			eventually(t, "it asks and gets an answer", func() error {
				most = max(most, heap()) // also while it reads the first answers
				if n := asked.Load(); n < 4 {
					return fmt.Errorf("asked %d times", n)
				}
				return nil
			})
			most = max(most, heap())
			if grown := int64(most) - int64(before); grown > 24<<20 {
				t.Errorf("the heap has grown by %d MiB", grown>>20)
			}
			if got, complete := pods.Pods(); len(got) != 1 || !complete {
				t.Errorf("pods are %v", got)
			}
			stop()
		})
	}
}

func TestAServerThatIsNotTheRightOneIsNotBelieved(t *testing.T) {
	asked := atomic.Int32{}
	right := liar(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	target, err := client.ReadKubeconfig(right)
	if err != nil {
		t.Fatal(err)
	}
	pods := newBoard(running("web"))
	// Another authority: that of the machine.
	cfg := config(t, writeKubeconfig(t, "{server: '"+target.Host+"'}", "{token: secret}"), pods)
	stop := start(t, cfg)
	eventually(t, "it is said why", func() error {
		if why := pods.trouble(manifests.Key{}); !strings.Contains(why, "certificate signed by unknown authority") {
			return errors.New(why)
		}
		return nil
	})
	stop()
	if asked.Load() > 0 {
		t.Error("it got our token")
	}
}

func TestErrorsOfServersAreShort(t *testing.T) {
	long := strings.Repeat("x", 5000)
	c, err := client.Open(liar(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "code": 200, "message": long})
	}), "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Do(t.Context(), client.Request{Method: http.MethodGet, API: client.CoreAPI, Resource: "nodes", Name: "n1"})
	if client.Code(err) != http.StatusForbidden || len(err.Error()) > 2*client.MaxReason {
		t.Error(err)
	}
}

func TestAnAnswerThatIsTooLargeIsNone(t *testing.T) {
	c, err := client.Open(liar(t, flood(`{"a":"`, strings.Repeat("x", 1<<16), 1000)), "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), client.Request{Method: http.MethodGet, API: client.CoreAPI, Resource: "nodes", Name: "n1", Into: &corev1.Node{}}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

func TestKubeconfigsThatCannotBeUsed(t *testing.T) {
	for _, tt := range []struct{ cluster, user, says string }{
		{"{server: 'http://x'}", "{}", `server "http://x" is no https URL`},
		{"{server: ''}", "{}", "invalid configuration"},
		{"{server: 'https://x'}", "{auth-provider: {name: gcp}}", "no Auth Provider found"},
		{"{server: 'https://x'}", "{username: x, password: z, token: z}", "more than one authentication method"},
		{"{server: 'https://x'}", "{client-certificate: a}", "client-key-data or client-key must be specified"},
		{"{server: 'https://x', certificate-authority: /does/not/exist}", "{}", "no such file"},
		{"{server: 'https://x', certificate-authority-data: eA==}", "{}", "unable to load root certificates"},
		{"{server: 'https://x'}", "{client-certificate-data: eA==, client-key-data: eA==}", "failed to find any PEM data"},
	} {
		if _, err := client.Open(writeKubeconfig(t, tt.cluster, tt.user), "test", quiet()); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %s: %v", tt.cluster, tt.user, err)
		}
	}
	for text, says := range map[string]string{"kind: Pod": "not a kubeconfig", "current-context: none": `the context "none"`} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Open(path, "test", quiet()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPathsOfAKubeconfigAreRelativeToIt(t *testing.T) {
	path := writeKubeconfig(t, "{server: 'https://x', certificate-authority: ca.crt}", "{client-certificate: a.crt, client-key: a.key}")
	dir := filepath.Dir(path)
	for _, name := range []string{"ca.crt", "a.crt", "a.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := client.ReadKubeconfig(path)
	if err != nil || got.CAFile != filepath.Join(dir, "ca.crt") || got.CertFile != filepath.Join(dir, "a.crt") || got.KeyFile != filepath.Join(dir, "a.key") {
		t.Errorf("%+v %v", got, err)
	}
}
