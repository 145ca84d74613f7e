package listener

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"monopod/node/kubeapi/access"
)

// lease are tokens that are valid until a time.
type lease struct{ until time.Time }

func (l lease) AuthenticateToken(context.Context, string) (u access.User, ok bool, err error) {
	if time.Now().After(l.until) {
		return u, false, errors.New("the pod of the token is gone")
	}
	return u, true, nil
}

func TestWatchesEndWithTheirCredentials(t *testing.T) {
	const life = 10 * time.Minute
	for name, c := range map[string]struct {
		query, token string
		certificate  bool
		least, most  time.Duration
	}{
		"a token":                {"?watch=1", "Bearer t", false, life, life + checkEvery},
		"a certificate":          {"?watch=true", "", true, life, life},
		"both":                   {"?watch=true", "Bearer t", true, life, life},
		"nothing":                {"?watch=1", "", false, time.Hour, time.Hour},
		"a request of any other": {"?command=sh", "Bearer t", false, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods"+c.query, nil)
				r.TLS = &tls.ConnectionState{}
				if c.certificate {
					r.TLS.PeerCertificates = []*x509.Certificate{{NotAfter: began.Add(life)}}
				}
				r.Header.Set("Authorization", c.token)
				whileValid(lease{began.Add(life)}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
					case <-time.After(time.Hour):
					}
				})).ServeHTTP(httptest.NewRecorder(), r)
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("ended after %v", took)
				}
			})
		})
	}
}

// TestPagesOfOtherSitesAreRefused: a browser adds the certificate of its user to their requests.
func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	h := sameOrigin(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	const site, origin, upgrade, token = "Sec-Fetch-Site", "Origin", "Upgrade", "Authorization"
	for name, c := range map[string]struct {
		method  string
		headers map[string]string
		code    int
	}{
		"kubectl":                 {"POST", nil, 200},
		"a page":                  {"POST", map[string]string{origin: "https://evil.example"}, 403},
		"a page without origin":   {"DELETE", map[string]string{origin: "null"}, 403},
		"another port":            {"PUT", map[string]string{origin: "https://127.0.0.1:8443"}, 403},
		"a site of this host":     {"POST", map[string]string{site: "same-site", origin: "https://127.0.0.1:6443"}, 403},
		"a WebSocket":             {"GET", map[string]string{upgrade: "websocket", origin: "https://evil.example"}, 403},
		"a rebound name":          {"GET", map[string]string{upgrade: "websocket", site: "cross-site"}, 403},
		"a WebSocket of kubectl":  {"GET", map[string]string{upgrade: "websocket"}, 200},
		"a library sends an own":  {"GET", map[string]string{upgrade: "websocket", origin: "https://127.0.0.1:6443"}, 200},
		"a library of Go":         {"GET", map[string]string{upgrade: "websocket", origin: "http://localhost"}, 200},
		"a page of this machine":  {"POST", map[string]string{origin: "http://localhost"}, 403},
		"another of its pages":    {"GET", map[string]string{upgrade: "websocket", origin: "http://localhost:8080"}, 403},
		"its page in a browser":   {"GET", map[string]string{upgrade: "websocket", site: "cross-site", origin: "http://localhost"}, 403},
		"a page of this API":      {"POST", map[string]string{site: "same-origin"}, 200},
		"a dashboard":             {"POST", map[string]string{origin: "https://dashboard.example", token: "Bearer t"}, 200},
		"a list, not readable":    {"GET", map[string]string{origin: "https://evil.example"}, 200},
		"a preflight, unanswered": {"OPTIONS", map[string]string{origin: "https://evil.example"}, 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "https://127.0.0.1:6443/api/v1/pods", nil)
		for key, value := range c.headers {
			r.Header.Set(key, value)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.code {
			t.Errorf("%s: %d, want %d", name, w.Code, c.code)
		}
	}
}
