package httpget

import (
	"context"
	"net"
	"net/http"
	"time"
)

// streamLimit is how much of a body a server may send before it is read, frameLimit the size of a frame; net/http permits 4 and 1 MiB.
const (
	streamLimit = 64 << 10
	frameLimit  = 16 << 10
)

// exchangeHTTP2 sends the request over HTTP/2 without TLS (h2c) on a new connection and reads the answer. It assumes that the server
// supports it; otherwise the request fails.
func (r *Request) exchangeHTTP2(ctx context.Context, deadline time.Time) (Answer, error) {
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	t := transportHTTP2(deadline)
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(r.library(r.URL).WithContext(ctx))
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	return answerOf(resp)
}

func transportHTTP2(deadline time.Time) *http.Transport {
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols: &h2c, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: headLimit, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: streamLimit, MaxReadFrameSize: frameLimit},
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialName(ctx, address, deadline)
		},
	}
}
