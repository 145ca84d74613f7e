package fields

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAServerSaysHowItWasAsked uses each protocol, and a connection without a request.
func TestAServerSaysHowItWasAsked(t *testing.T) {
	s, err := NewServer(t.Context(), func(n int, _ *Request) int { return 200 + n })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address := "127.0.0.1:" + s.Port()
	for n, ask := range []struct {
		scheme    string
		protocols func(p *http.Protocols)
		proto     int
	}{
		{"http", func(p *http.Protocols) { p.SetHTTP1(true) }, 1},
		{"https", func(p *http.Protocols) { p.SetHTTP1(true) }, 1},
		{"http", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, 2},
		{"https", func(p *http.Protocols) { p.SetHTTP2(true) }, 2},
	} {
		protocols := &http.Protocols{}
		ask.protocols(protocols)
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		resp, err := (&http.Client{Transport: transport}).Post(ask.scheme+"://"+address+"/path?query", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
		got := s.Requests()[n]
		if resp.StatusCode != 201+n || got.Method != http.MethodPost || got.URI != "/path?query" || got.Body != "body" || got.To != "127.0.0.1" ||
			got.TLS != (ask.scheme == "https") || got.Proto != ask.proto {
			t.Errorf("%s with HTTP/%d: %d, %+v", ask.scheme, ask.proto, resp.StatusCode, got)
		}
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for deadline := time.Now().Add(time.Minute); len(s.Requests()) < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is not seen")
		}
	}
	if last := s.Requests()[4]; last.Method != "" || last.To != "127.0.0.1" {
		t.Errorf("a connection without a request is %+v", last)
	}
}

func TestAServerSeesThatAClientGivesUp(t *testing.T) {
	asked := make(chan struct{})
	s, err := NewServer(t.Context(), func(_ int, r *Request) int { close(asked); <-r.GaveUp; return http.StatusOK })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	began, waited := time.Now(), make(chan time.Duration, 1)
	go func() {
		<-asked
		since := time.Now()
		<-time.NewTimer(time.Millisecond).C // it is patient for a while
		waited <- time.Since(since)
		giveUp()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+s.Port(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Fatal("it answered")
	}
	for deadline := time.Now().Add(time.Minute); s.Requests()[0].Took == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it waits on")
		}
	}
	if took, least, most := s.Requests()[0].Took, <-waited, time.Since(began); took < least || took > most {
		t.Errorf("the client waited %s, which is not from %s to %s", took, least, most)
	}
}
