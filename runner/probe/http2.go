package probe

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"
)

// exchangeHTTP2 sends a request over HTTP/2 without TLS (h2c) on a new connection and reads the answer. It assumes that the server supports
// it; otherwise the request fails.
func exchangeHTTP2(ctx context.Context, u *url.URL, header http.Header, deadline time.Time) (answer, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	t := transportHTTP2(deadline)
	defer t.CloseIdleConnections()
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: header.Clone()}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := t.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	return answerOf(resp)
}

func transportHTTP2(deadline time.Time) *http.Transport {
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols: &h2c, DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialName(ctx, address, deadline)
		},
	}
}
