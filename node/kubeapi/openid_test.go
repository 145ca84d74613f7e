package kubeapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/tokens"
)

func TestOthersCanVerifyTokens(t *testing.T) {
	signs := &signer{}
	s := serveSite(t, Config{Issuer: signs, URL: "https://127.0.0.1:6443"})
	for _, c := range []struct{ user, method, path, want string }{
		{"ann/other", "GET", tokens.ConfigurationPath, "200 application/json at https://127.0.0.1:6443"},
		{"ann/other", "GET", tokens.KeySetPath, "200 application/jwk-set+json keys"},
		{"ann/other", "HEAD", tokens.KeySetPath, "200 application/jwk-set+json "},
		{"", "GET", tokens.KeySetPath, "200 application/jwk-set+json keys"},
		{"ann/other", "POST", tokens.KeySetPath, "405 "},
		{"ann/other", "GET", "/openid/v1/other", "403 "},
		{"nobody", "GET", tokens.KeySetPath, "403 "},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://api"+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := as{c.user, s.transport}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		have := answer.Status[:3] + " "
		if answer.StatusCode == http.StatusOK {
			have += answer.Header.Get("Content-Type") + " " + string(body)
		}
		if err != nil || have != c.want || answer.StatusCode == http.StatusOK && answer.Header.Get("Cache-Control") != "public, max-age=3600" {
			t.Errorf("%s %s as %s: %s, %v, %v; want %s", c.method, c.path, c.user, have, answer.Header, err, c.want)
		}
	}
	signs.err = errors.New("the disk is full")
	if code, body := s.body("ann/other", "GET", tokens.KeySetPath); code != 500 || !strings.Contains(body, "the disk is full") {
		t.Errorf("%d %s", code, body)
	}
}

func TestWithoutTokensNoKeysAreServed(t *testing.T) {
	for name, cfg := range map[string]Config{"no issuer": {URL: "https://127.0.0.1:6443"}, "no listener": {Issuer: &signer{}}} {
		s := serveSite(t, cfg)
		for _, path := range []string{tokens.ConfigurationPath, tokens.KeySetPath} {
			if code, body := s.body("ann/other", "GET", path); code != 404 {
				t.Errorf("%s: %s: %d %s", name, path, code, body)
			}
		}
	}
}

// TestTheKeysAreWhereTheClientReachesThisServer: pods cannot connect to 127.0.0.1 of the machine.
func TestTheKeysAreWhereTheClientReachesThisServer(t *testing.T) {
	api := New(Config{State: newMemory(), Policy: access.NewPolicy(nil), Issuer: &signer{}, URL: "https://192.0.2.1:6443", Epoch: 1})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.Handler().ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), access.Root())))
	}))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+tokens.ConfigurationPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "elsewhere.example.com" // a client must not decide it
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "at "+server.URL {
		t.Errorf("%s, %v; want %s", body, err, server.URL)
	}
}
