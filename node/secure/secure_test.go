package secure

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod/internal/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority creates certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template(name, nil, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	}), template(name, nil, nil), &a.key.PublicKey, a.key)
	check(t, err)
	a.cert, err = x509.ParseCertificate(der)
	check(t, err)
	return a
}

func template(name string, groups []string, edit func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(c)
	}
	return c
}

// issue returns a certificate and its key in PEM.
func (a *authority) issue(t *testing.T, name string, groups []string, edit func(*x509.Certificate)) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template(name, groups, edit), a.cert, &private.PublicKey, a.key)
	check(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) client(t *testing.T, name string, groups []string, edit func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, name, groups, edit)
	pair, err := tls.X509KeyPair(cert, key)
	check(t, err)
	return &pair
}

// site is a server under test.
type site struct {
	t    *testing.T
	dir  string
	addr string
	log  *lockedBuffer
	// ca are the authorities that clients trust.
	ca *x509.CertPool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSite(t *testing.T) *site {
	return &site{t: t, dir: t.TempDir(), log: &lockedBuffer{}, ca: x509.NewCertPool()}
}

func (s *site) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name string, data []byte) string {
	s.t.Helper()
	check(s.t, os.WriteFile(s.path(name+".new"), data, 0o600))
	check(s.t, os.Rename(s.path(name+".new"), s.path(name)))
	return s.path(name)
}

// serve runs a server; nil fields get common defaults.
func (s *site) serve(cfg Config) {
	s.t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	check(s.t, err)
	s.addr, cfg.Log = ln.Addr().String(), s.logger()
	if cfg.Handler == nil {
		cfg.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			u, _ := UserOf(r.Context())
			fmt.Fprintf(w, "%s %v", u.Name, u.Groups)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(cfg).Serve(ctx, ln) }()
	s.t.Cleanup(func() {
		cancel()
		check(s.t, <-done)
	})
}

// selfSigned is the certificate most tests use.
func (s *site) selfSigned() *Certificate {
	s.t.Helper()
	c := SelfSigned(s.path("pki"), "node", func() []net.IP { return nil }, s.logger())
	pair, err := c.get()
	check(s.t, err)
	s.ca.AddCert(pair.Leaf)
	return c
}

// ask makes one request on a new connection.
func (s *site) ask(path string, cert *tls.Certificate, header ...string) (int, string) {
	s.t.Helper()
	code, body, err := s.try(path, &tls.Config{RootCAs: s.ca}, cert, header...)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", path, err, s.log)
	}
	return code, body
}

func (s *site) try(path string, conf *tls.Config, cert *tls.Certificate, header ...string) (int, string, error) {
	s.t.Helper()
	if cert != nil {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.addr+path, nil)
	check(s.t, err)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func (s *site) want(code int, body string) func(int, string) {
	s.t.Helper()
	return func(gotCode int, got string) {
		s.t.Helper()
		if gotCode != code || got != body {
			s.t.Errorf("%d %q, want %d %q\n%s", gotCode, got, code, body, s.log)
		}
	}
}

func TestClientCertificatesProveWhoAsks(t *testing.T) {
	t.Parallel()
	s, ca, other := newSite(t), newAuthority(t, "clients"), newAuthority(t, "others")
	file := s.write("ca.crt", ca.pem())
	s.serve(Config{Cert: s.selfSigned(), Access: &Access{ClientCA: NewAuthorities(file, s.logger()), Authorizer: AlwaysAllow{}}})
	alice := ca.client(t, "alice", []string{"ops"}, nil)
	s.want(200, "alice [ops system:authenticated]")(s.ask("/pods", alice))
	s.want(401, "Unauthorized")(s.ask("/pods", nil))
	s.want(401, "Unauthorized")(s.ask("/pods", other.client(t, "alice", nil, nil)))
	s.want(401, "Unauthorized")(s.ask("/pods", ca.client(t, "", nil, nil)))
	s.want(401, "Unauthorized")(s.ask("/pods", ca.client(t, "alice", nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })))
	s.want(401, "Unauthorized")(s.ask("/pods", ca.client(t, "alice", nil, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})))
	s.write("ca.crt", []byte("rubbish"))
	s.want(200, "alice [ops system:authenticated]")(s.ask("/pods", alice))
	s.write("ca.crt", other.pem())
	s.want(401, "Unauthorized")(s.ask("/pods", alice))
	bob := other.client(t, "bob", nil, nil)
	s.want(200, "bob [system:authenticated]")(s.ask("/pods", bob))
	check(t, os.Remove(file))
	s.want(401, "Unauthorized")(s.ask("/pods", bob))
	s.write("ca.crt", []byte("rubbish")) // what was deleted does not come back with it
	s.want(401, "Unauthorized")(s.ask("/pods", bob))
	s.write("ca.crt", other.pem())
	s.want(200, "bob [system:authenticated]")(s.ask("/pods", bob))
}

func TestTokensProveWhoAsks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.write("tokens", []byte("# monitoring\n0123456789abcdef,prometheus,7,\"metrics,system:authenticated\"\n"))
	s.serve(Config{Cert: s.selfSigned(), Access: &Access{Tokens: []Authenticator{NewTokenFile(file, s.logger())}, Authorizer: AlwaysAllow{}}})
	s.want(200, "prometheus [metrics system:authenticated]")(s.ask("/metrics", nil, "Authorization: Bearer 0123456789abcdef"))
	for _, header := range []string{"Bearer 0123456789abcdeF", "Bearer", "Basic 0123456789abcdef", "0123456789abcdef"} {
		s.want(401, "Unauthorized")(s.ask("/metrics", nil, "Authorization: "+header))
	}
	s.write("tokens", []byte("short,prometheus\n"))
	s.want(200, "prometheus [metrics system:authenticated]")(s.ask("/metrics", nil, "Authorization: Bearer 0123456789abcdef"))
	s.write("tokens", []byte("fedcba9876543210,other\n"))
	s.want(401, "Unauthorized")(s.ask("/metrics", nil, "Authorization: Bearer 0123456789abcdef"))
	const other = "Authorization: Bearer fedcba9876543210"
	s.want(200, "other [system:authenticated]")(s.ask("/metrics", nil, other))
	check(t, os.Rename(file, s.path("away")))
	s.want(401, "Unauthorized")(s.ask("/metrics", nil, other))
	s.write("tokens", []byte("short,prometheus\n")) // what was deleted does not come back with it
	s.want(401, "Unauthorized")(s.ask("/metrics", nil, other))
	check(t, os.Rename(s.path("away"), file))
	s.want(200, "other [system:authenticated]")(s.ask("/metrics", nil, other))
}

// TestATokenFileWithoutItsDirectoryIsDeleted, as a mounted volume is.
func TestATokenFileWithoutItsDirectoryIsDeleted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "auth")
	check(t, os.Mkdir(dir, 0o700))
	file := filepath.Join(dir, "tokens")
	check(t, os.WriteFile(file, []byte("0123456789abcdef,prometheus\n"), 0o600))
	tokens := NewTokenFile(file, slog.New(slog.DiscardHandler))
	known := func() bool {
		_, ok, _ := tokens.AuthenticateToken(t.Context(), "0123456789abcdef")
		return ok
	}
	if !known() {
		t.Fatal("the token is not accepted")
	}
	check(t, os.Rename(dir, dir+".old"))
	check(t, os.WriteFile(dir, nil, 0o600))
	if known() {
		t.Error("the token of a deleted file is accepted")
	}
}

// reviewer is an API server that reviews tokens and access.
type reviewer struct {
	err  error
	seen []Attributes
}

func (r *reviewer) AuthenticateToken(_ context.Context, token string) (User, bool, error) {
	return User{Name: "sa"}, token == "jwt", r.err
}

func (r *reviewer) Authorize(_ context.Context, a Attributes) (bool, error) {
	r.seen = append(r.seen, a)
	return a.Subresource == "proxy", r.err
}

func TestAnotherServerMayBeAskedWhoAndWhat(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), &reviewer{}
	s.serve(Config{Cert: s.selfSigned(), Access: &Access{Tokens: []Authenticator{r}, Authorizer: r}})
	s.want(200, "sa [system:authenticated]")(s.ask("/pods", nil, "Authorization: Bearer jwt"))
	if len(r.seen) != 2 || r.seen[0].Subresource != "pods" || r.seen[1].Subresource != "proxy" || r.seen[1].Verb != "get" || r.seen[1].Path != "/pods" || r.seen[1].User.Name != "sa" {
		t.Errorf("asked for %+v", r.seen)
	}
	s.want(403, "Forbidden (user=sa, verb=get, resource=nodes, subresource(s)=[stats])")(s.ask("/stats/summary", nil, "Authorization: Bearer jwt"))
	s.want(401, "Unauthorized")(s.ask("/pods", nil, "Authorization: Bearer other"))
	r.err = errors.New("API server is away")
	s.want(401, "Unauthorized")(s.ask("/pods", nil, "Authorization: Bearer jwt"))
	if a := (&Access{Anonymous: true, Authorizer: r}); a.check(mustRequest(t, "/pods")).code != 500 {
		t.Error("who cannot be judged is not refused with 500")
	}
}

func mustRequest(t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	check(t, err)
	return r
}

func TestRulesSayWhatStrangersAndFriendsMayDo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rules := Rules{"group:" + GroupUnauthenticated: {"healthz"}, "user:prometheus": {"metrics", "*:stats", "proxy"}, "group:ops": {"*"}}
	check(t, rules.Check())
	file := s.write("tokens", []byte("0123456789abcdef,prometheus\nfedcba9876543210,root,,ops\n"))
	s.serve(Config{Cert: s.selfSigned(), Access: &Access{Anonymous: true, Tokens: []Authenticator{NewTokenFile(file, s.logger())}, Authorizer: rules}})
	s.want(200, "system:anonymous [system:unauthenticated]")(s.ask("/healthz", nil))
	s.want(200, "system:anonymous [system:unauthenticated]")(s.ask("/readyz/runtime", nil))
	s.want(403, "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])")(s.ask("/pods", nil))
	s.want(401, "Unauthorized")(s.ask("/healthz", nil, "Authorization: Bearer wrong"))
	const prometheus, root = "Authorization: Bearer 0123456789abcdef", "Authorization: Bearer fedcba9876543210"
	s.want(200, "prometheus [system:authenticated]")(s.ask("/metrics/cadvisor", nil, prometheus))
	s.want(200, "prometheus [system:authenticated]")(s.ask("/stats/summary", nil, prometheus))
	s.want(403, "Forbidden (user=prometheus, verb=create, resource=nodes, subresource(s)=[proxy])")(s.ask("/exec/a/b/c", nil, prometheus))
	s.want(200, "root [ops system:authenticated]")(s.ask("/exec/a/b/c", nil, root))
	if ok, _ := (AlwaysAllow{}).Authorize(t.Context(), Attributes{User: User{Groups: []string{GroupUnauthenticated}}}); ok {
		t.Error("AlwaysAllow lets strangers in")
	}
	err := Rules{"alice": {"x"}, "user:": {"run:metrics"}, "group:a": {"create:proxy"}}.Check()
	want := `"alice" is neither user:<name> nor group:<name>
"user:" is neither user:<name> nor group:<name>
alice: "x" is not a subresource, as metrics or proxy, with or without a verb before it, as create:proxy
user:: "run:metrics" is not a subresource, as metrics or proxy, with or without a verb before it, as create:proxy`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestPathsAndMethodsAreThoseOfAKubelet(t *testing.T) {
	for path, want := range map[string]string{
		"/stats/summary": "stats", "/metrics": "metrics", "/metrics/cadvisor": "metrics", "/logs/": "log", "/checkpoint/a/b/c": "checkpoint",
		"/pods": "pods proxy", "/runningpods/": "pods proxy", "/healthz/ping": "healthz proxy", "/livez": "healthz proxy", "/configz": "configz proxy",
		"/exec/a/b/c": "proxy", "/statsx": "proxy", "/": "proxy", "": "proxy", "/statusz": "statusz", "/flagz": "configz proxy",
	} {
		if got := strings.Join(Subresources(path), " "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for method, want := range map[string]string{"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "OPTIONS": "options"} {
		if got := verb(method); got != want {
			t.Errorf("%s: %s", method, got)
		}
	}
}

func TestACertificateOfOurOwnIsKeptAndRenewed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	own := func(name string, now time.Time) *Certificate {
		return selfSignedIn(s.path("pki"), &selfSigned{
			names: []string{name, "localhost"}, ips: func() []net.IP { return []net.IP{net.IPv4(192, 0, 2, 1)} }, now: func() time.Time { return now },
		}, s.logger())
	}
	get := func(c *Certificate) *x509.Certificate {
		t.Helper()
		pair, err := c.get()
		check(t, err)
		return pair.Leaf
	}
	atEpoch := time.Unix(0, 0)
	first := get(own("node", atEpoch))
	if first.NotBefore.Year() != 2020 || first.NotAfter.Year() < 2029 || first.VerifyHostname("192.0.2.1") != nil || first.VerifyHostname("node") != nil || first.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("certificate %+v", first)
	}
	if info, err := os.Stat(s.path("pki/monopod.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key %v, %v", info, err)
	}
	if again := get(own("node", time.Now())); !again.Equal(first) {
		t.Error("it is not kept")
	}
	late := own("node", first.NotAfter.Add(-renewAhead))
	if renewed := get(late); renewed.Equal(first) || !renewed.NotAfter.After(first.NotAfter) {
		t.Error("it is not renewed")
	}
	named := get(own("other", time.Now()))
	if named.VerifyHostname("other") != nil {
		t.Error("it has the wrong name")
	}
	check(t, os.WriteFile(s.path("pki/monopod.crt"), []byte("rubbish"), 0o600))
	if mended := get(own("other", time.Now())); mended.Equal(named) {
		t.Error("a broken one is not replaced")
	}
}

func TestACertificateIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	s, ca := newSite(t), newAuthority(t, "servers")
	s.ca.AddCert(ca.cert)
	server := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	put := func(name string) {
		cert, key := ca.issue(t, name, nil, server)
		s.write("tls.key", key)
		s.write("tls.crt", cert)
	}
	put("first")
	s.serve(Config{Cert: Files(s.path("tls.crt"), s.path("tls.key"), s.logger())})
	named := func(name string) {
		t.Helper()
		if _, _, err := s.try("/", &tls.Config{RootCAs: s.ca, ServerName: name}, nil); err != nil {
			t.Errorf("%s: %v\n%s", name, err, s.log)
		}
	}
	named("first")
	put("second")
	named("second")
	s.write("tls.key", []byte("rubbish"))
	named("second")
	named("second")
	if n := strings.Count(s.log.String(), "certificate cannot be used"); n != 1 {
		t.Errorf("%d complaints:\n%s", n, s.log)
	}
	put("third")
	named("third")
	if _, err := Files(s.path("none"), s.path("none"), s.logger()).get(); err == nil {
		t.Error("a certificate that is not there")
	}
}

func TestUntilACertificateIsIssuedAnotherOneServes(t *testing.T) {
	t.Parallel()
	s, ca := newSite(t), newAuthority(t, "issuer")
	own := s.selfSigned()
	c := Issued(s.path("issued.pem"), own, s.logger())
	leaf := func() *x509.Certificate {
		t.Helper()
		pair, err := c.get()
		check(t, err)
		return pair.Leaf
	}
	first, err := own.get()
	check(t, err)
	if !leaf().Equal(first.Leaf) {
		t.Error("it is not our own")
	}
	s.write("issued.pem", []byte("-----BEGIN"))
	if !leaf().Equal(first.Leaf) {
		t.Error("a broken file ends our own")
	}
	cert, key := ca.issue(t, "node", nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	s.write("issued.pem", append(cert, key...))
	issued := leaf()
	if issued.Issuer.CommonName != "issuer" {
		t.Errorf("it is of %s", issued.Issuer)
	}
	check(t, os.Remove(s.path("issued.pem")))
	if !leaf().Equal(issued) {
		t.Error("what was issued is given up because its file is gone")
	}
}

func TestVersionsAndSuitesOfTLSAreThoseConfigured(t *testing.T) {
	t.Parallel()
	version, err := ParseVersion("VersionTLS13")
	check(t, err)
	s := newSite(t)
	s.serve(Config{Cert: s.selfSigned(), MinVersion: version})
	if _, _, err := s.try("/", &tls.Config{RootCAs: s.ca, MaxVersion: tls.VersionTLS12}, nil); err == nil {
		t.Error("TLS 1.2 where 1.3 is demanded")
	}
	s.ask("/", nil)
	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	suites, err := ParseCipherSuites([]string{suite})
	check(t, err)
	s = newSite(t)
	s.serve(Config{Cert: s.selfSigned(), CipherSuites: suites})
	if _, _, err := s.try("/", &tls.Config{RootCAs: s.ca, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, nil); err == nil {
		t.Error("a suite that is not configured")
	}
	if _, _, err := s.try("/", &tls.Config{RootCAs: s.ca, MaxVersion: tls.VersionTLS12, CipherSuites: suites}, nil); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"VersionTLS10", "TLS13"} {
		if _, err := ParseVersion(bad); err == nil {
			t.Errorf("version %s", bad)
		}
	}
	for _, bad := range []string{"TLS_RSA_WITH_RC4_128_SHA", "nonsense"} {
		if _, err := ParseCipherSuites([]string{suite, bad}); err == nil {
			t.Errorf("suite %s", bad)
		}
	}
}

func TestStrangersCannotTakeAllConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(Config{MaxConnections: 4, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })})
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
		check(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	answers := func(c net.Conn) bool {
		check(t, c.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return false
		}
		b := make([]byte, 15)
		n, _ := io.ReadFull(c, b)
		return string(b[:n]) == "HTTP/1.1 200 OK"
	}
	first, second := dial(), dial()
	if !answers(first) || !answers(second) {
		t.Fatal("the first two get no answer")
	}
	if answers(dial()) {
		t.Error("one address has more than its share")
	}
	check(t, first.Close())
	for deadline := time.Now().Add(time.Minute); !answers(dial()); {
		if time.Now().After(deadline) {
			t.Fatal("what was given back cannot be had")
		}
	}
}

// from is a connection of a client with an address.
type from struct {
	net.Conn
	addr *net.TCPAddr
}

func (f from) RemoteAddr() net.Addr { return f.addr }
func (f from) Close() error         { return nil }

// queued is a listener with a fixed list of connections.
type queued struct {
	net.Listener
	waiting []from
}

func (q *queued) Accept() (net.Conn, error) {
	if len(q.waiting) == 0 {
		return nil, net.ErrClosed
	}
	c := q.waiting[0]
	q.waiting = q.waiting[1:]
	return c, nil
}

func TestConnectionsAreCountedByWhatOneMachineMayHave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		clients string
		want    int
		local   bool
	}{
		"one address":                      {clients: "192.0.2.1 192.0.2.1 192.0.2.1", want: 2},
		"the same, written as IPv6":        {clients: "192.0.2.1 ::ffff:192.0.2.1 192.0.2.1", want: 2},
		"neighbors with IPv4":              {clients: "192.0.2.1 192.0.2.2 192.0.2.3", want: 3},
		"one network with IPv6":            {clients: "2001:db8:0:1::1 2001:db8:0:1::2 2001:db8:0:1:ffff:ffff:ffff:ffff", want: 2},
		"two networks with IPv6":           {clients: "2001:db8:0:1::1 2001:db8:0:2::1 2001:db8:0:1::2 2001:db8:0:2::2", want: 4},
		"one interface":                    {clients: "fe80::1%a fe80::2%a fe80::3%a", want: 2},
		"two interfaces":                   {clients: "fe80::1%a fe80::2%b fe80::3%a fe80::4%b", want: 4},
		"all that there are, and one more": {clients: "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5", want: 4},
		"clients of this machine":          {clients: "127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1", want: 2},
		"clients of this machine, local":   {clients: "127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1", want: 4, local: true},
		"the same with IPv6":               {clients: "::1 ::1 ::1 ::1 ::1", want: 4, local: true},
		"others, local":                    {clients: "192.0.2.1 192.0.2.1 192.0.2.1", want: 2, local: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &queued{}
			for text := range strings.FieldsSeq(c.clients) {
				q.waiting = append(q.waiting, from{addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(text), 4000))})
			}
			l := newLimited(q, 4, c.local)
			var in []net.Conn
			for {
				conn, err := l.Accept()
				if err != nil {
					break
				}
				in = append(in, conn)
			}
			if len(in) != c.want {
				t.Errorf("%d are let in, want %d", len(in), c.want)
			}
			for _, conn := range in {
				check(t, conn.Close())
			}
			if l.all != 0 || len(l.open) > 0 {
				t.Errorf("afterwards %d are counted, of %v", l.all, l.open)
			}
		})
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	got := make(chan error, 1)
	s.serve(Config{
		Streams: func(r *http.Request) bool { return r.URL.Path == "/stream" },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			got <- err
			w.WriteHeader(http.StatusNoContent)
		}),
	})
	post := func(path string, size int, header string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+path, bytes.NewReader(make([]byte, size)))
		check(t, err)
		req.Header.Set("X-Long", header)
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		check(t, err)
		check(t, res.Body.Close())
		return res.StatusCode
	}
	if post("/stream", 2*maxBody, "") != 204 || <-got != nil {
		t.Error("a stream is bounded")
	}
	if post("/", maxBody, ""); <-got != nil {
		t.Error("a small body is refused")
	}
	if post("/", maxBody+1, ""); <-got == nil {
		t.Error("a large body is read")
	}
	if code := post("/", 0, strings.Repeat("x", 3*maxHeader)); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large header: %d", code)
	}
}

func TestAPortThatIsTakenIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ln := loopback.Listen(t)
	server := NewServer(Config{Address: ln.Addr().String(), Handler: http.NotFoundHandler(), Log: s.logger()})
	server.retry = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	logged := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(s.log.String(), text); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %q:\n%s", text, s.log)
			}
		}
	}
	logged("cannot listen")
	check(t, ln.Close())
	logged("answers requests")
	cancel()
	check(t, <-done)
	if strings.Count(s.log.String(), "cannot listen") != 1 {
		t.Errorf("it complained more than once:\n%s", s.log)
	}
}

func TestAStrangerCannotKeepAConnectionByABodyThatNeverComes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := NewServer(Config{
		Access: &Access{Authorizer: AlwaysAllow{}}, Streams: func(*http.Request) bool { return true }, Handler: http.NotFoundHandler(), Log: s.logger(),
	})
	server.answer = 50 * time.Millisecond
	ln, err := server.listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln) }()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	check(t, err)
	defer c.Close()
	check(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, "POST /exec/a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
	check(t, err)
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
	cancel()
	check(t, <-done)
}

// dry is a listener with an error from which http.Server does not recover.
type dry struct{ net.Listener }

func (dry) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Err: syscall.ENOBUFS}
}

func TestAPortThatCannotBeServedAnyMoreIsOpenedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := NewServer(Config{Address: "127.0.0.1:0", Handler: http.NotFoundHandler(), Log: s.logger()})
	server.retry = time.Millisecond
	opened, open := make(chan string, 2), server.listen
	server.listen = func(ctx context.Context, address string) (net.Listener, error) {
		ln, err := open(ctx, address)
		check(t, err)
		opened <- ln.Addr().String()
		if len(opened) == 1 {
			return dry{ln}, nil
		}
		return ln, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); len(opened) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not opened again")
		}
	}
	<-opened
	res, err := http.Get("http://" + <-opened)
	check(t, err)
	check(t, res.Body.Close())
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("%d", res.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	check(t, <-done)
}

// TestTheConnectionOfAStreamIsFound: streams watch the connection in the kernel to detect that the client is gone.
func TestTheConnectionOfAStreamIsFound(t *testing.T) {
	t.Parallel()
	s, found := newSite(t), make(chan net.Conn, 1)
	s.serve(Config{Cert: s.selfSigned(), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		below := c
		for wrapped, ok := below.(interface{ NetConn() net.Conn }); ok; wrapped, ok = below.(interface{ NetConn() net.Conn }) {
			below = wrapped.NetConn()
		}
		found <- below
	})})
	_, _, _ = s.try("/", &tls.Config{RootCAs: s.ca}, nil)
	c := <-found
	if _, ok := c.(*net.TCPConn); !ok {
		t.Errorf("it is a %T", c)
	}
}

// TestAHandlerMayAuthorizeItself: without an Authorizer, authenticated clients reach the handler, which knows them.
func TestAHandlerMayAuthorizeItself(t *testing.T) {
	t.Parallel()
	s, ca := newSite(t), newAuthority(t, "clients")
	s.write("ca.crt", ca.pem())
	s.serve(Config{
		Cert:    s.selfSigned(),
		Access:  &Access{ClientCA: NewAuthorities(s.path("ca.crt"), s.logger())},
		MaxBody: 10,
		Refuse: func(w http.ResponseWriter, _ *http.Request, code int, text string) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "refused: "+text)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			u, ok := UserOf(r.Context())
			_, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, u.Name, u.Groups, ok, err)
		}),
	})
	post := func(certificates ...tls.Certificate) string {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: s.ca, ServerName: "node", Certificates: certificates}}
		res, err := (&http.Client{Transport: transport}).Post("https://"+s.addr+"/exec/x", "text/plain", strings.NewReader("eleven char"))
		check(t, err)
		defer func() { check(t, res.Body.Close()) }()
		text, err := io.ReadAll(res.Body)
		check(t, err)
		return fmt.Sprint(res.StatusCode, " ", string(text))
	}
	if got := post(); got != "401 refused: Unauthorized" {
		t.Error(got)
	}
	if got := post(*ca.client(t, "alice", []string{"ops"}, nil)); !strings.HasPrefix(got, "200 alice[ops system:authenticated] true http: request body too large") {
		t.Error(got)
	}
}

func TestAServerServesOnAListenerThatExists(t *testing.T) {
	t.Parallel()
	ln, err := listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	s := NewServer(Config{
		Address: ln.Addr().String(), Listener: ln, Log: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }),
	})
	s.retry = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for range 2 { // the second time it has to listen itself
		var text []byte
		for deadline := time.Now().Add(10 * time.Second); string(text) != "here" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if res, err := http.Get("http://" + s.cfg.Address); err == nil {
				text, _ = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
		}
		if string(text) != "here" {
			t.Fatalf("got %q", text)
		}
		_ = ln.Close()
		http.DefaultClient.CloseIdleConnections()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
