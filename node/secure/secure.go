// Package secure serves a handler to clients other than root over TCP: TLS with certificates that are re-read when they change, client
// certificates and tokens, authorization by what a kubelet calls the subresource of a path, and limits on the memory that strangers can
// use.
//
// It must not know what is served: that is up to the handler.
//
// Goroutines: those of net/http, one per connection; Server.Run waits for them. Files are checked on a new connection, and never in
// between.
package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// Limits of a connection. Those of the kubelet are wider, because it trusts its network.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// answerTimeout is the timeout of requests that are not streams.
	answerTimeout = time.Minute
	maxHeader     = 32 << 10
	maxBody       = 1 << 20
	shutdownGrace = time.Second
	// DefaultMaxConnections is the default maximum number of open connections.
	DefaultMaxConnections = 64
)

// Config configures a Server.
type Config struct {
	// Address is the listen address, as host:port.
	Address string
	// Listener already listens on Address; if nil, Run listens.
	Listener net.Listener
	// Early allows listening before any interface has the address.
	Early bool
	// Cert has the certificate; nil means plain HTTP.
	Cert *Certificate
	// MinVersion and CipherSuites are passed to crypto/tls; 0 and nil are its defaults.
	MinVersion   uint16
	CipherSuites []uint16
	// Access authorizes requests; nil allows everything to every client.
	Access *Access
	// Handler serves requests. Streams reports which of them have no time limit; nil means none.
	Handler http.Handler
	Streams func(*http.Request) bool
	// MaxConnections is the maximum number of open connections, and half of it for each address, or /64 of IPv6; 0 means
	// DefaultMaxConnections.
	MaxConnections int
	// Local allows clients on loopback addresses to use all connections.
	Local bool
	// MaxBody is the maximum size of the body of a request that is not a stream; 0 means 1 MiB.
	MaxBody int64
	// Refuse writes the response to a refused request; nil writes plain text.
	Refuse func(w http.ResponseWriter, r *http.Request, code int, text string)
	Log    *slog.Logger
}

// Server serves one address.
type Server struct {
	cfg Config
	// retry is the first interval between attempts to listen, answer the timeout of requests that are not streams.
	retry, answer time.Duration
	listen        func(context.Context, string) (net.Listener, error)
}

// NewServer returns a Server. It does no I/O.
func NewServer(cfg Config) *Server {
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = DefaultMaxConnections
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = maxBody
	}
	if cfg.Streams == nil {
		cfg.Streams = func(*http.Request) bool { return false }
	}
	s := &Server{cfg: cfg, retry: firstListen, answer: answerTimeout, listen: listen}
	if cfg.Early {
		s.listen = listenEarly
	}
	if first := cfg.Listener; first != nil {
		s.listen = func(ctx context.Context, address string) (net.Listener, error) {
			if ln := first; ln != nil {
				first = nil
				return ln, nil
			}
			return listen(ctx, address)
		}
	}
	return s
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// Intervals between attempts to listen: the address may appear with the network, or another process may use the port.
const (
	firstListen = time.Second
	lastListen  = time.Minute
)

// Run listens and serves until ctx ends. Failures are logged and retried, because no other part depends on the server.
func (s *Server) Run(ctx context.Context) error {
	last, wait := "", s.retry
	for {
		ln, err := s.listen(ctx, s.cfg.Address)
		if err == nil {
			s.cfg.Log.Info("answers requests", "address", ln.Addr().String(), "tls", s.cfg.Cert != nil)
			err = s.Serve(ctx, ln)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != last {
			last = err.Error()
			s.cfg.Log.Error("cannot listen; retrying", "address", s.cfg.Address, "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		wait = min(2*wait, lastListen)
	}
}

// Serve serves on a listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ln = newLimited(ln, s.cfg.MaxConnections, s.cfg.Local)
	srv := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		// HTTP/2 has no upgrades, which exec needs, and allows many concurrent requests on one connection.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	if s.cfg.Cert != nil {
		_, _ = s.cfg.Cert.get() // so that clients find one that we make; what is wrong with it is in the log, and it is tried again
		ln = tls.NewListener(ln, s.tls())
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		_ = srv.Close()
		return fmt.Errorf("serve %s: %w", s.cfg.Address, err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := srv.Shutdown(bounded); err != nil {
		_ = srv.Close() // what is left is cut off
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) tls() *tls.Config {
	c := &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cfg.Cert.get() },
		MinVersion:     max(tls.VersionTLS12, s.cfg.MinVersion),
		CipherSuites:   s.cfg.CipherSuites,
		NextProtos:     []string{"http/1.1"},
	}
	if s.cfg.Access != nil && s.cfg.Access.ClientCA != nil {
		c.ClientAuth = tls.RequestClientCert // whose it is, is asked with each request: the CA may change
	}
	return c
}

// handler limits requests and authorizes them.
func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w) // the timeouts of http.Server would count for streams, too
		bound := func(deadline time.Time) {
			if err := errors.Join(control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)); err != nil {
				s.cfg.Log.Debug("set the deadline of a request", "err", err)
			}
		}
		bound(time.Now().Add(s.answer))
		stream := s.cfg.Streams(r)
		if !stream {
			r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		}
		if s.cfg.Access != nil {
			if refusal := s.cfg.Access.check(r); refusal != nil {
				s.refuse(w, r, refusal)
				return
			}
		}
		if stream { // and not before: strangers would keep their connections by bodies that never come
			bound(time.Time{})
		}
		s.cfg.Handler.ServeHTTP(w, r)
	})
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, e *refusal) {
	s.cfg.Log.Debug("refused a request", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "reason", e.log)
	if e.code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Connection", "close")
	if s.cfg.Refuse != nil {
		s.cfg.Refuse(w, r, e.code, e.text)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(e.code)
	_, _ = w.Write([]byte(e.text)) // who does not listen need not know
}

// ParseVersion parses the kubelet's name of a TLS version; an empty name means the default of crypto/tls.
func ParseVersion(name string) (uint16, error) {
	switch name {
	case "":
		return 0, nil
	case "VersionTLS12":
		return tls.VersionTLS12, nil
	case "VersionTLS13":
		return tls.VersionTLS13, nil
	case "VersionTLS10", "VersionTLS11":
		return 0, fmt.Errorf("%s is no longer safe; use VersionTLS12 or VersionTLS13", name)
	}
	return 0, fmt.Errorf("%q is not a version of TLS; use VersionTLS12 or VersionTLS13", name)
}

// ParseCipherSuites parses names of cipher suites, such as TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256.
func ParseCipherSuites(names []string) ([]uint16, error) {
	var ids []uint16
	for _, name := range names {
		id, err := cipherSuite(name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func cipherSuite(name string) (uint16, error) {
	for _, s := range tls.CipherSuites() {
		if s.Name == name {
			return s.ID, nil
		}
	}
	for _, s := range tls.InsecureCipherSuites() {
		if s.Name == name {
			return 0, fmt.Errorf("%s is not safe", name)
		}
	}
	return 0, fmt.Errorf("unknown cipher suite %q; names begin with TLS_, for example %s", name, strings.ToUpper(tls.CipherSuites()[0].Name))
}
