package httpget

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
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
