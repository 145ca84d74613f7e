package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// UserAgent is the user agent of HTTP probes; programs recognize probes by its prefix.
const UserAgent = "kube-probe/1.36"

// maxRedirects is the maximum number of redirects to the same host that are followed.
const maxRedirects = 10

// httpHandler makes GET requests. Each attempt uses a new connection, like a new client.
//
// It does not use http.Client, which starts two goroutines for each connection and needs twice the CPU time (ADR 0011). HTTP/2 requests use
// the library.
type httpHandler struct {
	target Target
	get    *corev1.HTTPGetAction
	port   string
	header http.Header
	// mu guards the last encoded request.
	mu   sync.Mutex
	url  *url.URL
	text []byte
}

func newHTTPHandler(get *corev1.HTTPGetAction, t Target, port int) handler {
	return &httpHandler{target: t, get: get, port: strconv.Itoa(port), header: headerOf(get.HTTPHeaders)}
}

// headerOf adds the default headers. An empty value in the manifest removes a default.
func headerOf(all []corev1.HTTPHeader) http.Header {
	h := http.Header{"Connection": {"close"}}
	for _, one := range all {
		h.Add(one.Name, one.Value)
	}
	for name, value := range map[string]string{"User-Agent": UserAgent, "Accept": "*/*"} {
		if _, ok := h[name]; !ok {
			h.Set(name, value)
		} else if h.Get(name) == "" {
			delete(h, name)
			if name == "User-Agent" {
				h[name] = nil // otherwise Go's own would be sent
			}
		}
	}
	return h
}

// request returns the current URL and the encoded request.
func (h *httpHandler) request() (*url.URL, []byte, error) {
	host := net.JoinHostPort(hostOf(h.get.Host, h.target), h.port)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.url != nil && h.url.Host == host {
		return h.url, h.text, nil
	}
	u, err := url.Parse(h.get.Path)
	if err != nil { // treat it as a path
		u = &url.URL{Path: h.get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(h.get.Scheme)), host
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	text, err := h.write(u)
	if err != nil {
		return nil, nil, err
	}
	h.url, h.text = u, text
	return u, text, nil
}

func (h *httpHandler) write(u *url.URL) ([]byte, error) {
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: h.header.Clone()}
	if host := h.header.Get("Host"); host != "" {
		r.Host = host
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (h *httpHandler) ask(ctx context.Context, timeout time.Duration) Outcome {
	first, text, err := h.request()
	if err != nil {
		return Outcome{Result: Errored, Output: err.Error(), Fault: faultOf(err)}
	}
	deadline := time.Now().Add(timeout)
	u := first
	for range maxRedirects {
		a, err := h.exchange(ctx, u, text, deadline)
		if err != nil {
			return httpError(u, err, timeout)
		}
		next, err := a.redirect(u)
		if err != nil {
			return httpError(u, err, timeout)
		}
		if next == nil || next.Hostname() != first.Hostname() {
			return a.outcome(next != nil)
		}
		if text, err = h.write(next); err != nil {
			return httpError(next, err, timeout)
		}
		u = next
	}
	return httpError(u, fmt.Errorf("stopped after %d redirects", maxRedirects), timeout)
}

// exchange sends the request to a URL, as text for HTTP/1, and reads the answer.
func (h *httpHandler) exchange(ctx context.Context, u *url.URL, text []byte, deadline time.Time) (answer, error) {
	if p := h.get.Protocol; p != nil && *p == corev1.HTTPProtocolHTTP2 {
		return exchangeHTTP2(ctx, u, h.header, deadline)
	}
	return exchange(ctx, u, text, deadline)
}

func httpError(u *url.URL, err error, timeout time.Duration) Outcome {
	if e, ok := errors.AsType[*bodyError](err); ok {
		return Outcome{Result: Errored, Output: e.Error()}
	}
	if late(err) {
		err = fmt.Errorf("no answer within %s: %w", timeout, err)
	}
	return Outcome{Result: Failure, Output: fmt.Sprintf("Get %q: %v", u, err), Fault: faultOf(err)}
}

// bodyError means that the body of an answer could not be read completely. It does not count as a result of the probe.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "read the answer: " + e.err.Error() }

// answer is the relevant part of a response.
type answer struct {
	code     int
	location string
	body     string
}

func (a answer) outcome(elsewhere bool) Outcome {
	switch {
	case elsewhere:
		return Outcome{Result: Warning, Output: "Probe terminated redirects, Response body: " + a.body}
	case a.code >= 200 && a.code < 400:
		return Outcome{Result: Success, Output: a.body}
	}
	return Outcome{Result: Failure, Output: fmt.Sprintf("HTTP probe failed with statuscode: %d", a.code), Fault: statusFault(a.code)}
}

// redirect returns the target of a redirect, nil if the answer is none.
func (a answer) redirect(from *url.URL) (*url.URL, error) {
	switch a.code {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if a.location == "" {
			return nil, nil
		}
		u, err := from.Parse(a.location)
		if err != nil {
			return nil, fmt.Errorf("redirect to %q: %w", a.location, err)
		}
		return u, nil
	}
	return nil, nil
}

//nolint:gochecknoglobals // a pool of buffers
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// exchange sends a request on a new connection and reads the answer.
func exchange(ctx context.Context, u *url.URL, text []byte, deadline time.Time) (answer, error) {
	c, err := connect(ctx, u, deadline)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(text); err != nil {
		return answer{}, err
	}
	r := readers.Get().(*bufio.Reader)
	r.Reset(c)
	defer func() {
		r.Reset(nil)
		readers.Put(r)
	}()
	return read(r)
}

// answerOf reads the body of a response, up to the limit.
func answerOf(resp *http.Response) (answer, error) {
	a := answer{code: resp.StatusCode, location: resp.Header.Get("Location")}
	body, err := io.ReadAll(io.LimitReader(resp.Body, outputLimit))
	a.body = string(body)
	if err != nil {
		return a, &bodyError{err}
	}
	return a, nil
}

// read reads a response and skips informational ones (1xx).
func read(r *bufio.Reader) (answer, error) {
	for range 6 {
		resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // closing would read it to its end; the connection is closed
		if err != nil {
			return answer{}, err
		}
		if resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		return answerOf(resp)
	}
	return answer{}, errors.New("too many 1xx informational responses")
}

// connect opens a connection for a URL.
func connect(ctx context.Context, u *url.URL, deadline time.Time) (conn, error) {
	switch u.Scheme {
	case "http", "https":
	default:
		return nil, fmt.Errorf("unsupported protocol scheme %q", u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	address := net.JoinHostPort(u.Hostname(), port)
	if u.Scheme == "http" {
		return dial(ctx, address, deadline)
	}
	return dialTLS(ctx, address, deadline)
}

// dialTLS connects with TLS. It does not verify certificates: a probe checks whether the program answers, and most certificates are not
// valid for the address that is probed.
func dialTLS(ctx context.Context, address string, deadline time.Time, protocols ...string) (conn, error) {
	c, err := dialName(ctx, address, deadline)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: protocols}) //nolint:gosec // see above
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secure, nil
}
