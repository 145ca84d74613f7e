package fields

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// Server listens on a port of this host and records requests. It accepts HTTP/1 and HTTP/2, with TLS (and a self-signed certificate) if the
// client uses it.
type Server struct {
	answer   func(n int, r *Request) int
	listener net.Listener
	conns    chan net.Conn
	// ctx ends with the server.
	ctx    context.Context
	cancel context.CancelFunc
	web    *http.Server
	cert   *tls.Config
	wait   sync.WaitGroup

	mu       sync.Mutex
	requests []*Request
}

// Request is what a Server received; a connection without a request has an empty Method.
type Request struct {
	// At is when it arrived, and Took how long the client waited if it gave up.
	At   time.Time
	Took time.Duration
	// Method, URI, Host, Header and Body are those of HTTP.
	Method, URI, Host string
	Header            http.Header
	Body              string
	// TLS reports whether it was encrypted. Proto is 1 or 2.
	TLS   bool
	Proto int
	// To is the destination address.
	To string
	// GaveUp is closed when the client disconnects.
	GaveUp <-chan struct{}
}

// NewServer listens on a free port of all addresses; answer may be nil. Close ends it.
func NewServer(ctx context.Context, answer func(n int, r *Request) int) (*Server, error) {
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		return nil, err
	}
	s := &Server{answer: answer, listener: l, conns: make(chan net.Conn), cert: nobodysCertificate()}
	s.ctx, s.cancel = context.WithCancel(ctx)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.web = &http.Server{Handler: http.HandlerFunc(s.serve), Protocols: protocols, ReadHeaderTimeout: time.Minute}
	s.wait.Go(s.accept)
	s.wait.Go(func() { _ = s.web.Serve(tapped{s}) })
	return s, nil
}

// nobodysCertificate is a certificate that no client trusts.
func nobodysCertificate() *tls.Config {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
}

// Port returns the port of the server.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	return port
}

// Requests returns all requests received so far.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Request, len(s.requests))
	for i, r := range s.requests {
		c := *r
		all[i] = &c
	}
	return all
}

// Close ends the server and all connections.
func (s *Server) Close() {
	s.cancel()
	_ = s.listener.Close()
	_ = s.web.Close()
	s.wait.Wait()
}

// accept reads the first byte of each connection, which shows whether TLS follows, and passes it on.
func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.wait.Go(func() { s.look(c) })
	}
}

func (s *Server) look(c net.Conn) {
	stop := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	first := bufio.NewReader(c)
	b, err := first.Peek(1)
	stop()
	if err != nil {
		s.note(&Request{At: time.Now(), To: hostOf(c)})
		_ = c.Close()
		return
	}
	var conn net.Conn = &peeked{Conn: c, first: first}
	if b[0] == 22 { // a TLS handshake
		conn = tls.Server(conn, s.cert)
	}
	select {
	case s.conns <- conn:
	case <-s.ctx.Done():
		_ = c.Close()
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	req := &Request{
		At: time.Now(), Method: r.Method, URI: r.RequestURI, Host: r.Host, Header: r.Header, TLS: r.TLS != nil, Proto: r.ProtoMajor,
		GaveUp: r.Context().Done(),
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		req.To, _, _ = net.SplitHostPort(a.String())
	}
	var body bytes.Buffer
	_, _ = io.Copy(&body, io.LimitReader(r.Body, 1<<16))
	req.Body = body.String()
	n := s.note(req)
	status := http.StatusOK
	if s.answer != nil {
		status = s.answer(n, req)
	}
	if r.Context().Err() != nil {
		s.mu.Lock()
		req.Took = time.Since(req.At)
		s.mu.Unlock()
		return
	}
	w.WriteHeader(status)
}

func (s *Server) note(r *Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	return len(s.requests)
}

func hostOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.LocalAddr().String())
	return host
}

// peeked is a connection whose first bytes were read into a buffer.
type peeked struct {
	net.Conn
	first *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.first.Read(b) }

// tapped is the listener that returns inspected connections.
type tapped struct{ s *Server }

func (t tapped) Accept() (net.Conn, error) {
	select {
	case c := <-t.s.conns:
		return c, nil
	case <-t.s.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (t tapped) Close() error   { return nil }
func (t tapped) Addr() net.Addr { return t.s.listener.Addr() }
