package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"monopod/internal/loopback"
)

func spdyTransport(config *rest.Config) (http.RoundTripper, spdy.Upgrader, error) {
	return spdy.RoundTripperFor(config)
}

// echo is a server that answers when it has heard all.
func echo(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, _ := io.ReadAll(c)
				_, _ = fmt.Fprintf(c, "%d bytes: ", len(b))
				_, _ = c.Write(b)
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

// TestPortsByTheClientsThatPeopleUse: kubectl's, over SPDY and through a WebSocket.
func TestPortsByTheClientsThatPeopleUse(t *testing.T) {
	b := newBed(t, nil)
	u, err := url.Parse(b.url + "/portForward/default/web")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: b.url}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, config)
	if err != nil {
		t.Fatal(err)
	}
	answers, ln := greeter(t)
	defer ln.Close()
	for name, dialer := range map[string]httpstream.Dialer{"SPDY": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u), "WebSocket": tunnel} {
		t.Run(name, func(t *testing.T) {
			stop, ready := make(chan struct{}), make(chan struct{})
			f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", answers)}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- f.ForwardPorts() }()
			<-ready
			ports, err := f.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(c, "caller %d\n", i)
				got, err := io.ReadAll(c)
				_ = c.Close()
				if want := fmt.Sprintf("hello caller %d\n", i); err != nil || string(got) != want {
					t.Errorf("%q, %v", got, err)
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// greeter answers a line and hangs up.
func greeter(t testing.TB) (int, net.Listener) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var line []byte
				for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
				_, _ = fmt.Fprintf(c, "hello %s", line)
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port, ln
}

// local returns both ends of a connection.
func local(t testing.TB) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err == nil {
		far, err = ln.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

// TestTheEndOfOneWayDoesNotEndTheOther: a server that answers to the end of a request.
func TestTheEndOfOneWayDoesNotEndTheOther(t *testing.T) {
	b := newBed(t, nil)
	port := echo(t)
	near, far := local(t)
	done := make(chan error, 1)
	go func() {
		done <- NewClient(time.Minute, b.dial).forward(t.Context(), "/portForward/default/web", port, far)
	}()
	data := bytes.Repeat([]byte("x"), 1<<20)
	go func() {
		_, _ = near.Write(data)
		_ = near.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(near)
	if want := fmt.Sprintf("%d bytes: %s", len(data), data); err != nil || string(got) != want {
		t.Errorf("%v, %d bytes", err, len(got))
	}
	_ = near.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAForwardedConnectionEndsWithItsClient, also when the server never says a word.
func TestAForwardedConnectionEndsWithItsClient(t *testing.T) {
	b := newBed(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, far := local(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- NewClient(time.Minute, b.dial).forward(ctx, "/portForward/default/web", ln.Addr().(*net.TCPAddr).Port, far)
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	if err := <-done; err == nil {
		t.Log("it had ended before")
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server: %v", err)
	}
}

func TestAPortThatNobodyListensOn(t *testing.T) {
	b := newBed(t, nil)
	port := loopback.Closed(t)
	near, far := local(t)
	defer near.Close()
	err := NewClient(time.Minute, b.dial).forward(t.Context(), "/portForward/default/web", port, far)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("error forwarding port %d to pod default/web", port)) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	if err := NewClient(time.Minute, b.dial).forward(t.Context(), "/portForward/a/b", port, far); err == nil || err.Error() != `pod "a/b" does not exist` {
		t.Errorf("%v", err)
	}
}

func TestPortsInAPlainWebSocket(t *testing.T) {
	b := newBed(t, nil)
	port, ln := greeter(t)
	defer ln.Close()
	ws, err := websocket.Dial(strings.Replace(b.url, "http", "ws", 1)+"/portForward/default/web?port="+strconv.Itoa(port), protocolV4, "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if err := websocket.Message.Send(ws, []byte("\x00me\n")); err != nil {
		t.Fatal(err)
	}
	var all []string
	for {
		var m []byte
		if err := websocket.Message.Receive(ws, &m); err != nil {
			break
		}
		all = append(all, string(m))
	}
	number := string([]byte{byte(port), byte(port >> 8)})
	if want := []string{"\x00" + number, "\x01" + number, "\x00hello me\n"}; strings.Join(all, "/") != strings.Join(want, "/") {
		t.Errorf("%q, want %q", all, want)
	}
	for query, want := range map[string]string{"": "0 ports", "?port=0": "is not a port", "?port=80,x": "is not a port", "?port=" + strings.Repeat("80,", 64) + "80": "65 ports"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/portForward/default/web"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="} {
			r.Header.Set(name, value)
		}
		tr := &http.Transport{DisableKeepAlives: true}
		res, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s %s", query, res.Status, text)
		}
	}
}

func TestAFrameThatIsTooLong(t *testing.T) {
	frame := func(size int) []byte {
		return append([]byte{0, 0, 0, 1, 0, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
	}
	good := bytes.Join([][]byte{frame(0), frame(1), frame(maxFrame), frame(7)}, nil)
	for _, chunk := range []int{1, 7, 8, 9, 1000, len(good)} {
		b := &bounded{from: bytes.NewReader(good)}
		n := 0
		for p := make([]byte, chunk); ; {
			m, err := b.Read(p)
			n += m
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("in pieces of %d: %v", chunk, err)
				}
				break
			}
		}
		if n != len(good) {
			t.Errorf("in pieces of %d: %d bytes", chunk, n)
		}
		if chunk == 1 {
			continue
		}
		bad := &bounded{from: bytes.NewReader(append(frame(3), frame(maxFrame+1)...))}
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{bad}); !errors.Is(err, errFrame) {
			t.Errorf("a frame that is too long: %v", err)
		}
	}
}
