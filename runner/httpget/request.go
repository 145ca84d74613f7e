// Package httpget sends the GET requests of probes and hooks to servers of pods, and opens their connections.
//
// Servers of pods are not trusted: redirects are followed only to the host that was asked, as in the kubelet. Otherwise a pod could have any
// server that this machine reaches called, with headers of its choice. The package must not know pods, nor judge an answer. It starts no
// goroutines of its own; those of net/http, for HTTP/2, end with the request.
package httpget

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// BodyLimit is the number of bytes of a body that are read. The rest is ignored.
const BodyLimit = 10 << 10

// maxRedirects is the maximum number of requests in a chain of redirects.
const maxRedirects = 10

// Request is a GET request. It can be sent repeatedly and concurrently; each time it uses a new connection, like a new client.
type Request struct {
	// URL must not be changed.
	URL    *url.URL
	header http.Header
	http2  bool
	// text is the encoded request for HTTP/1.
	text []byte
}

// New encodes a request, which keeps both arguments. A Host header replaces the host of the URL in the request.
func New(u *url.URL, h http.Header) (*Request, error) {
	r := &Request{URL: u, header: h}
	var b bytes.Buffer
	if err := r.library(u).Write(&b); err != nil {
		return nil, err
	}
	r.text = b.Bytes()
	return r, nil
}

// NewHTTP2 returns a request that is sent over HTTP/2 without TLS.
func NewHTTP2(u *url.URL, h http.Header) *Request { return &Request{URL: u, header: h, http2: true} }

// to returns the request for another URL.
func (r *Request) to(u *url.URL) (*Request, error) {
	if r.http2 {
		return NewHTTP2(u, r.header), nil
	}
	return New(u, r.header)
}

// library returns the request of net/http.
func (r *Request) library(u *url.URL) *http.Request {
	out := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: r.header.Clone()}
	if out.Header == nil {
		out.Header = http.Header{} // net/http refuses nil
	}
	if host := r.header.Get("Host"); host != "" {
		out.Host = host
	}
	return out
}

// Answer is the relevant part of a response.
type Answer struct {
	Code int
	// Body is the body, up to BodyLimit.
	Body string
	// Elsewhere is set if the response redirects to another host.
	Elsewhere bool
	location  string
}

// BodyError means that the body of a response could not be read completely.
type BodyError struct{ err error }

func (e *BodyError) Error() string { return "read the answer: " + e.err.Error() }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.err }

// Do sends the request and follows redirects to the same host, until ctx ends or the deadline has passed; zero: no deadline. Errors are
// *url.Error with the URL that failed.
func (r *Request) Do(ctx context.Context, deadline time.Time) (Answer, error) {
	at := r
	for range maxRedirects {
		a, next, err := r.step(ctx, at, deadline)
		if err != nil {
			return Answer{}, at.failed(err)
		}
		if next == nil {
			return a, nil
		}
		at = next
	}
	return Answer{}, at.failed(fmt.Errorf("stopped after %d redirects", maxRedirects))
}

func (r *Request) failed(err error) error {
	return &url.Error{Op: "Get", URL: r.URL.String(), Err: err}
}

// step sends one request of a chain that began with r. The next one is nil if the chain ends here.
func (r *Request) step(ctx context.Context, at *Request, deadline time.Time) (Answer, *Request, error) {
	a, err := at.exchange(ctx, deadline)
	if err != nil {
		return Answer{}, nil, err
	}
	target, err := a.redirect(at.URL)
	if err != nil || target == nil {
		return a, nil, err
	}
	if target.Hostname() != r.URL.Hostname() {
		a.Elsewhere = true
		return a, nil, nil
	}
	next, err := r.to(target)
	return a, next, err
}

// redirect returns the target of a redirect, nil if the answer is none.
func (a Answer) redirect(from *url.URL) (*url.URL, error) {
	switch a.Code {
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

// exchange sends the request once. The error of a canceled ctx is its cause.
func (r *Request) exchange(ctx context.Context, deadline time.Time) (Answer, error) {
	a, err := r.send(ctx, deadline)
	if err != nil && ctx.Err() != nil {
		return a, context.Cause(ctx)
	}
	return a, err
}

func (r *Request) send(ctx context.Context, deadline time.Time) (Answer, error) {
	if r.http2 {
		return r.exchangeHTTP2(ctx, deadline)
	}
	return r.exchangeHTTP1(ctx, deadline)
}

// answerOf reads the body of a response, up to the limit.
func answerOf(resp *http.Response) (Answer, error) {
	a := Answer{Code: resp.StatusCode, location: resp.Header.Get("Location")}
	body, err := io.ReadAll(io.LimitReader(resp.Body, BodyLimit))
	a.Body = string(body)
	if err != nil {
		return a, &BodyError{err}
	}
	return a, nil
}
