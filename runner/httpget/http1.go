package httpget

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// headLimit is the maximum size of the head of a response, headLines that of its lines. A parsed line takes more memory than it has bytes.
const (
	headLimit = 64 << 10
	headLines = 256
)

//nolint:gochecknoglobals // a pool of buffers
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// exchangeHTTP1 sends the request on a new connection and reads the answer.
//
// It does not use http.Client, which starts two goroutines for each connection and needs twice the CPU time (ADR 0011). HTTP/2 requests use
// the library.
func (r *Request) exchangeHTTP1(ctx context.Context, deadline time.Time) (Answer, error) {
	c, err := connect(ctx, r.URL, deadline)
	if err != nil {
		return Answer{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(r.text); err != nil {
		return Answer{}, err
	}
	in := readers.Get().(*bufio.Reader)
	in.Reset(c)
	defer func() {
		in.Reset(nil)
		readers.Put(in)
	}()
	return read(in)
}

// read reads a response and skips informational ones (1xx).
func read(r *bufio.Reader) (Answer, error) {
	for range 6 {
		var err error
		if r, err = withHead(r); err != nil {
			return Answer{}, err
		}
		resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // closing would read it to its end; the connection is closed
		if err != nil {
			return Answer{}, err
		}
		if resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		return answerOf(resp)
	}
	return Answer{}, errors.New("too many 1xx informational responses")
}

// withHead reads ahead until the buffer contains the head of the next response, because http.ReadResponse has no limits. It returns a reader
// with a larger buffer if the head needs one. Input that ends early, or is no response, is left to http.ReadResponse.
func withHead(r *bufio.Reader) (*bufio.Reader, error) {
	lines, seen := 0, 0 // seen is the size of these lines
	for {
		b, _ := r.Peek(r.Buffered())
		for n := bytes.IndexByte(b[seen:], '\n'); n >= 0; n = bytes.IndexByte(b[seen:], '\n') {
			line := b[seen : seen+n]
			end := len(line) == 0 || string(line) == "\r"
			if end || lines == 0 && !bytes.HasPrefix(line, []byte("HTTP/")) {
				return r, nil
			}
			lines, seen = lines+1, seen+n+1
		}
		switch {
		case lines > headLines:
			return r, fmt.Errorf("the head of the answer has more than %d lines", headLines)
		case len(b) >= headLimit:
			return r, fmt.Errorf("the head of the answer is longer than %d bytes", headLimit)
		case len(b) == r.Size():
			r = bufio.NewReaderSize(r, headLimit)
		}
		if _, err := r.Peek(len(b) + 1); err != nil {
			return r, nil //nolint:nilerr // http.ReadResponse gets the same error
		}
	}
}

// connect opens a connection for a URL.
func connect(ctx context.Context, u *url.URL, deadline time.Time) (Conn, error) {
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
		return Dial(ctx, address, deadline)
	}
	return DialTLS(ctx, address, deadline)
}
