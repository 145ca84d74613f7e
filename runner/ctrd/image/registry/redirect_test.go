package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"monopod/runner/ctrd/image/registrytest"
)

// overheard is a host of an attacker: it requests a login for each request, and records the logins it gets.
type overheard struct {
	*httptest.Server
	mu    sync.Mutex
	shown []string
	asked int
}

func newOverheard(t *testing.T, challenge func(self string) string) *overheard {
	t.Helper()
	o := &overheard{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.asked++
		if secret := r.Header.Get("Authorization") + r.PostForm.Get("password"); secret != "" {
			o.shown = append(o.shown, r.Method+" "+r.URL.Path+": "+secret)
		}
		rw.Header().Set("WWW-Authenticate", challenge(o.URL))
		rw.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(o.Close)
	return o
}

// TestARegistryCannotSendALoginOverPlainHTTP: neither its own, nor one of another registry.
func TestARegistryCannotSendALoginOverPlainHTTP(t *testing.T) {
	for name, challenge := range map[string]func(string) string{
		"basic":  func(string) string { return `Basic realm="x"` },
		"bearer": func(self string) string { return fmt.Sprintf(`Bearer realm="%s/token",service="x"`, self) },
	} {
		t.Run(name, func(t *testing.T) {
			victim := newOverheard(t, challenge)
			l := registrytest.New(t)
			ref := l.Host + "/fleet/pods:1"
			l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
			away := func(rw http.ResponseWriter, r *http.Request) bool {
				http.Redirect(rw, r, victim.URL+r.URL.Path, http.StatusTemporaryRedirect)
				return true
			}
			l.Before.Store(&away)
			file := filepath.Join(t.TempDir(), "config.json")
			must(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"hunter2"},%q:{"username":"me","password":"hunter2"}}}`,
				strings.TrimPrefix(victim.URL, "http://"), l.Host), 0o600))
			if _, err := fetch(t, NewArtifacts(Access{AuthFile: file}), ref, "", 100); err == nil {
				t.Error("there is no such artifact")
			}
			victim.mu.Lock()
			defer victim.mu.Unlock()
			if len(victim.shown) > 0 || victim.asked == 0 {
				t.Errorf("asked %d times, shown %q", victim.asked, victim.shown)
			}
		})
	}
}

// TestContentMayComeFromElsewhere: registries send us to where their blobs are.
func TestContentMayComeFromElsewhere(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
	var came, known atomic.Int32
	store := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		came.Add(1)
		if r.Header.Get("Authorization") != "" {
			known.Add(1)
		}
		_, _ = rw.Write([]byte("a: 1\n"))
	}))
	t.Cleanup(store.Close)
	away := func(rw http.ResponseWriter, r *http.Request) bool {
		if user, _, _ := r.BasicAuth(); user != "me" {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		http.Redirect(rw, r, store.URL, http.StatusTemporaryRedirect)
		return true
	}
	l.Before.Store(&away)
	file := filepath.Join(t.TempDir(), "config.json")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"hunter2"}}}`, l.Host), 0o600))
	got, err := fetch(t, NewArtifacts(Access{AuthFile: file}), ref, "", 100)
	must(t, err)
	if string(got.Layers[0].Data) != "a: 1\n" || came.Load() != 1 || known.Load() != 0 {
		t.Errorf("%+v; %d requests elsewhere, %d with a login", got, came.Load(), known.Load())
	}
}

func TestWhichRequestsAreExposed(t *testing.T) {
	for chain, want := range map[string]bool{
		"https://a/":                       false,
		"http://a/":                        false,
		"https://a/ https://b/":            false,
		"https://a/ http://a/":             true,
		"https://a/ http://b/":             true,
		"https://a/ https://b/ http://b/":  true,
		"https://a/ http://b/ http://b/x":  true,
		"https://a/ http://b/ https://b/x": false,
		"http://a/ http://a/x":             false,
		"http://a/ http://b/":              true,
		"http://a/ http://b/ http://a/":    false,
	} {
		var r *http.Request
		for url := range strings.FieldsSeq(chain) {
			next, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			must(t, err)
			if r != nil {
				next.Response = &http.Response{Request: r}
			}
			r = next
		}
		if got := exposed(r); got != want {
			t.Errorf("%s: %t", chain, got)
		}
	}
}
