package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// app is a server in the pod, which answers with what it was asked.
func app(t *testing.T, tls bool) (port string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-App", "yes")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) { _ = r.Header.Write(w) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Big", strings.Repeat("x", maxHeaders)) })
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		line := bufio.NewReader(r.Body)
		_ = http.NewResponseController(w).EnableFullDuplex()
		for {
			text, err := line.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(w, "got %s", text)
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.Handle("/socket", websocket.Handler(func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = nil
	if tls {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

// answered is a response whose body has been read.
type answered struct {
	StatusCode int
	Header     http.Header
}

// ask sends a request, and neither follows redirections nor keeps the connection.
func (m *machine) ask(method, path string, body io.Reader, edit func(*http.Request)) (answered, string) {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), method, m.url+path, body)
	if err != nil {
		m.t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		m.t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return answered{res.StatusCode, res.Header}, string(b)
}

func TestRequestsAreProxiedAsTheyAre(t *testing.T) {
	m := newMachine(t, nil)
	plain, secure := app(t, false), app(t, true)
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/pods/web:" + plain + "/proxy/", "", "GET / "},
		{"GET", "/pods/http:web:" + plain + "/proxy/a/b?c=d&c=e", "", "GET /a/b?c=d&c=e "},
		{"POST", "/pods/web:" + plain + "/proxy/a%2Fb/%20/?x=%2F", "hello", "POST /a%2Fb/%20/?x=%2F hello"},
		{"PATCH", "/pods/web:" + plain + "/proxy/proxy/proxy", "x", "PATCH /proxy/proxy x"},
		{"DELETE", "/pods/https:web:" + secure + "/proxy/x/", "", "DELETE /x/ "},
		{"OPTIONS", "/pods/web:" + plain + "/proxy/x", "", "OPTIONS /x "},
		{"POST", "/pods/web:" + plain + "/proxy", "x", "POST / x"},
	} {
		res, got := m.ask(c.method, c.path, strings.NewReader(c.body), nil)
		if got != c.want || res.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %d %q, want %q", c.method, c.path, res.StatusCode, got, c.want)
		}
		if h := res.Header; h.Get("X-App") != "yes" || h.Get("Keep-Alive") != "" || h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: %v", c.path, h)
		}
	}
}

func TestTheProxyItselfIsADirectory(t *testing.T) {
	m := newMachine(t, nil)
	for _, path := range []string{"/pods/web:1/proxy", "/services/web:1/proxy"} {
		res, _ := m.ask("GET", path+"?a=b", nil, nil)
		if to := res.Header.Get("Location"); res.StatusCode != http.StatusMovedPermanently || to != "/api/v1/namespaces/default"+path+"/?a=b" {
			t.Errorf("%d %s", res.StatusCode, to)
		}
	}
}

// TestPodsDoNotSeeCredentials, nor the identity headers that a client sends.
func TestPodsDoNotSeeCredentials(t *testing.T) {
	m := newMachine(t, nil)
	_, got := m.ask("GET", "/pods/web:"+app(t, false)+"/proxy/headers", nil, func(r *http.Request) {
		for name, value := range map[string]string{
			"Authorization": "Bearer secret1", "Proxy-Authorization": "Basic secret2", "Impersonate-User": "secret3", "Impersonate-Extra-A": "secret4",
			"X-Remote-User": "secret5", "X-Remote-Extra-Scopes": "secret6", "X-Forwarded-For": "secret7", "X-Forwarded-Uri": "secret8", "Forwarded": "for=secret9",
			"Connection": "X-Hop", "X-Hop": "secret10", "Te": "trailers", "Cookie": "session=app", "X-Custom": "kept",
			"Sec-Websocket-Protocol": bearer + "c2VjcmV0, mine, also-mine",
		} {
			r.Header.Set(name, value)
		}
	})
	if strings.Contains(got, "secret") || strings.Contains(got, bearer) {
		t.Errorf("%s", got)
	}
	for _, want := range []string{"Cookie: session=app", "X-Custom: kept", "X-Forwarded-Uri: /api/v1/namespaces/default/pods/web:", "X-Forwarded-For: 127.0.0.1", "Sec-Websocket-Protocol: mine, also-mine"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

func TestATokenThatIsTheOnlyProtocolIsRemoved(t *testing.T) {
	h := http.Header{"Sec-Websocket-Protocol": {bearer + "x"}, "Authorization": {"y"}}
	if anonymize(h); len(h) != 0 {
		t.Errorf("%v", h)
	}
}

func TestRedirectionsAreNotFollowedAndStayInThePod(t *testing.T) {
	m := newMachine(t, nil)
	port := app(t, false)
	prefix := "/api/v1/namespaces/default/pods/web:" + port + "/proxy"
	for to, want := range map[string]string{
		"/login?x=y":                        prefix + "/login?x=y",
		"/dir/":                             prefix + "/dir/",
		"relative":                          "relative",
		"../up":                             "../up",
		"http://example.com/away":           "http://example.com/away",
		"//example.com/away":                "//example.com/away",
		"http://web.default:" + port + "/a": prefix + "/a",
		prefix + "/kept":                    prefix + "/kept",
		strings.TrimSuffix(m.url, "/api/v1/namespaces/default") + "/home": prefix + "/home",
		"http://[bad": "http://[bad",
	} {
		res, _ := m.ask("GET", "/pods/web:"+port+"/proxy/redirect?to="+url.QueryEscape(to), nil, nil)
		if got := res.Header.Get("Location"); got != want || res.StatusCode != http.StatusFound {
			t.Errorf("%s: %d %s, want %s", to, res.StatusCode, got, want)
		}
	}
}

func TestBodiesAreStreamedBothWays(t *testing.T) {
	m := newMachine(t, nil)
	u, err := url.Parse(m.url)
	if err != nil {
		t.Fatal(err)
	}
	// net/http's client would wait for the end of the body.
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s/pods/web:%s/proxy/slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", u.Path, app(t, false))
	fmt.Fprint(conn, "4\r\none\n\r\n")
	from := bufio.NewReader(conn)
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); line != "got one\n" {
		t.Errorf("%q, %v", line, err)
	}
	fmt.Fprint(conn, "4\r\ntwo\n\r\n0\r\n\r\n")
	if rest, err := io.ReadAll(lines); string(rest) != "got two\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestUpgradesAreProxied(t *testing.T) {
	m := newMachine(t, nil)
	for range 2 {
		ws := m.webSocket("/pods/web:"+app(t, false)+"/proxy/socket", "mine")
		for _, text := range []string{"hello", strings.Repeat("x", 1<<11)} {
			var got string
			if err := websocket.Message.Send(ws, text); err != nil {
				t.Fatal(err)
			}
			if err := websocket.Message.Receive(ws, &got); err != nil || got != text {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		_ = ws.Close()
	}
}

func TestAnswersThatDoNotComeAre503(t *testing.T) {
	refused := func(m *machine, _ *Config) {
		m.dial = func(context.Context, int) (net.Conn, error) { return nil, errors.New("nothing answers") }
	}
	port := app(t, false)
	for _, c := range []struct {
		name, path, message string
		code                int32
		edit                func(*machine, *Config)
	}{
		{"nothing listens", "/pods/web:99/proxy/", "port 99 of pod default/web: nothing answers", 503, refused},
		{"silence", "/pods/web:" + port + "/proxy/silent", "timeout", 503, func(_ *machine, c *Config) { c.HeaderTimeout = 20 * time.Millisecond }},
		{"a header without end", "/pods/web:" + port + "/proxy/big", "server response headers exceeded", 503, nil},
		{"no TLS there", "/pods/https:web:" + port + "/proxy/", "does not look like a TLS handshake", 503, nil},
		{"no way to pods", "/pods/web:1/proxy/", "cannot be reached", 503, func(_ *machine, c *Config) { c.Dial = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, c.edit)
			r, err := http.NewRequestWithContext(t.Context(), "GET", m.url+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if s := status(t, res); s.Code != c.code || !strings.Contains(s.Message, c.message) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestProxiedConnectionsEndWhenNothingMoves(t *testing.T) {
	m := newMachine(t, func(_ *machine, c *Config) { c.IdleTimeout = 30 * time.Millisecond })
	ws := m.webSocket("/pods/web:" + app(t, false) + "/proxy/socket")
	defer ws.Close()
	var got []byte
	if err := websocket.Message.Receive(ws, &got); err == nil {
		t.Errorf("%q", got)
	}
}

func TestNodesAreTheKubeletsPaths(t *testing.T) {
	node := func(_ *machine, c *Config) {
		c.Node = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %q", r.Method, r.RequestURI, r.Header.Get("Authorization"))
		})
	}
	for _, c := range []struct {
		method, path string
		edit         func(*machine, *Config)
		code         int
		want         string
	}{
		{"GET", "/proxy/stats/summary?only_cpu=1", node, 200, `GET /stats/summary?only_cpu=1 ""`},
		{"POST", "/proxy/run/a%2Fb", node, 200, `POST /run/a%2Fb ""`},
		{"GET", "/proxy", node, 301, ""},
		{"GET", "/proxy/metrics", nil, 404, `"reason":"NotFound"`},
	} {
		m := newMachine(t, c.edit)
		m.url = strings.TrimSuffix(m.url, "/namespaces/default") + "/nodes/n"
		res, got := m.ask(c.method, c.path, nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") })
		if res.StatusCode != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s", c.path, res.StatusCode, got)
		}
	}
}
