//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// endlessServer is a server whose answers never end.
type endlessServer struct {
	name, probe   string
	begin, repeat []byte
	// frames reports that clients speak HTTP/2.
	frames bool
	port   int
	// asked counts the requests that were answered until the client closed the connection.
	asked atomic.Int32
}

// serve answers until the test ends.
func (e *endlessServer) serve(t *testing.T) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	e.port = l.Addr().(*net.TCPAddr).Port
	var all sync.WaitGroup
	open := make(chan struct{})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				ended := make(chan struct{})
				all.Go(func() {
					select {
					case <-open:
					case <-ended:
					}
					_ = c.Close()
				})
				defer close(ended)
				if err := e.answer(c, &all); err == nil {
					e.asked.Add(1)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		close(open)
		all.Wait()
	})
}

// answer answers one request. It returns an error if there was none.
func (e *endlessServer) answer(c net.Conn, all *sync.WaitGroup) error {
	in := bufio.NewReader(c)
	if e.frames {
		if err := requestHTTP2(c, in); err != nil {
			return err
		}
	} else if err := requestHTTP1(in); err != nil {
		return err
	}
	all.Go(func() { _, _ = io.Copy(io.Discard, in) }) // acknowledgements
	_, err := c.Write(e.begin)
	for many := bytes.Repeat(e.repeat, 1+64<<10/len(e.repeat)); err == nil; {
		_, err = c.Write(many)
	}
	return nil
}

func requestHTTP1(in *bufio.Reader) error {
	for {
		switch line, err := in.ReadString('\n'); {
		case err != nil:
			return err
		case line == "\r\n":
			return nil
		}
	}
}

// requestHTTP2 reads up to the head of the request, which opens stream 1.
func requestHTTP2(c io.Writer, in *bufio.Reader) error {
	if _, err := io.CopyN(io.Discard, in, int64(len(http2.ClientPreface))); err != nil {
		return err
	}
	f := http2.NewFramer(c, in)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		if _, head := frame.(*http2.HeadersFrame); head {
			return nil
		}
	}
}

// framed returns encoded frames.
func framed(t *testing.T, write func(f *http2.Framer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(http2.NewFramer(&b, nil)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// head is an encoded head of HTTP/2.
func head(t *testing.T, fields ...hpack.HeaderField) []byte {
	t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		if err := e.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func endlessHTTP1() []*endlessServer {
	const ok = "HTTP/1.1 200 OK\r\n"
	all := []*endlessServer{
		{name: "long header lines", begin: []byte(ok), repeat: []byte("Name: " + strings.Repeat("x", 1000) + "\r\n")},
		{name: "short header lines", begin: []byte(ok), repeat: []byte("A:\r\n")},
		{name: "a header line", begin: []byte(ok + "A: "), repeat: []byte("x")},
		{name: "a continued line", begin: []byte(ok + "A: "), repeat: []byte("x\r\n ")},
		{name: "a status line", begin: []byte("HTTP/1.1 200 "), repeat: []byte("OK")},
		{name: "a line", repeat: []byte("x")},
		{name: "informational responses", repeat: []byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")},
		{name: "a body", begin: []byte(ok + "\r\n"), repeat: []byte("x")},
		{name: "chunks", begin: []byte(ok + "Transfer-Encoding: chunked\r\n\r\n"), repeat: []byte("1\r\nx\r\n")},
		{name: "an extension of a chunk", begin: []byte(ok + "Transfer-Encoding: chunked\r\n\r\n1;"), repeat: []byte("x")},
		{name: "a trailer", begin: []byte(ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n"), repeat: []byte("A: x\r\n")},
	}
	for _, e := range all {
		e.probe = "httpGet: {path: /, port: PORT}"
	}
	return all
}

// twoGiB announces, in the encoding of HPACK, a value of this length.
const twoGiB = "\x7f\xff\xff\xff\xff\x07"

func endlessHTTP2(t *testing.T, probe string) []*endlessServer {
	t.Helper()
	heads := func(end bool, block []byte) []byte {
		return framed(t, func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: end})
		})
	}
	status := head(t, hpack.HeaderField{Name: ":status", Value: "200"}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
	line := head(t, hpack.HeaderField{Name: "name", Value: strings.Repeat("x", 1000), Sensitive: true})
	continued := func(block []byte) []byte {
		return framed(t, func(f *http2.Framer) error { return f.WriteContinuation(1, false, block) })
	}
	all := []*endlessServer{
		{name: "header lines", begin: heads(false, status), repeat: continued(line)},
		{name: "a header line", begin: heads(false, append(bytes.Clone(status), "\x10\x04name"+twoGiB...)), repeat: continued(bytes.Repeat([]byte("x"), 1000))},
		{name: "a status", begin: heads(false, []byte("\x10\x07:status"+twoGiB)), repeat: continued(bytes.Repeat([]byte("2"), 1000))},
		{name: "empty header lines", begin: heads(false, status), repeat: continued(nil)},
		{name: "informational responses", repeat: heads(true, head(t, hpack.HeaderField{Name: ":status", Value: "103"}))},
		{name: "a body", begin: heads(true, status), repeat: framed(t, func(f *http2.Framer) error { return f.WriteData(1, false, make([]byte, 1000)) })},
		{name: "padding", begin: heads(true, status), repeat: framed(t, func(f *http2.Framer) error { return f.WriteDataPadded(1, false, nil, make([]byte, 200)) })},
		{name: "pings", repeat: framed(t, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) })},
		{name: "settings", repeat: framed(t, func(f *http2.Framer) error { return f.WriteSettings() })},
		{name: "a frame", repeat: append([]byte{0xff, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, 1}, make([]byte, 1000)...)},
	}
	for _, e := range all {
		e.probe, e.frames = probe, true
	}
	return all
}

// TestAttackProbes: what a probed server sends without end does not take the memory of the agent, in whichever part of the answer it is.
func TestAttackProbes(t *testing.T) {
	a := newAttacked(t)
	times, timeout := int32(2), 2
	if large() {
		times, timeout = 10, 10
	}
	for _, group := range []struct {
		name    string
		servers []*endlessServer
	}{
		{"http1", endlessHTTP1()},
		{"http2", endlessHTTP2(t, "httpGet: {path: /, port: PORT, protocol: HTTP2}")},
		{"grpc", endlessHTTP2(t, "grpc: {port: PORT}")},
	} {
		name, servers := group.name, group.servers
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  hostNetwork: true\n  terminationGracePeriodSeconds: 1\n  containers:\n", name)
		for i, e := range servers {
			e.serve(t)
			text += fmt.Sprintf("  - {name: c%d, image: %s, command: [sleep, '3600'], readinessProbe: {periodSeconds: 1, timeoutSeconds: %d, failureThreshold: 1, %s}}\n",
				i, image, timeout, strings.Replace(e.probe, "PORT", fmt.Sprint(e.port), 1))
		}
		a.survives("endless answers: "+name, func() {
			a.put(name, text)
			a.eventually("each server was asked several times", func() error {
				var errs []error
				for _, e := range servers {
					if n := e.asked.Load(); n < times {
						errs = append(errs, fmt.Errorf("%s: %d times", e.name, n))
					}
				}
				return errors.Join(errs...)
			})
		})
		a.drop(name)
		a.gone(name)
	}
}
