package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// libraryHandler makes the requests of httpHandler and grpcHandler with the client of net/http, for comparison; see ADR 0011.
type libraryHandler struct {
	address string
	grpc    bool
}

func (h *libraryHandler) ask(ctx context.Context, timeout time.Duration) Outcome {
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	transport := &http.Transport{
		DisableCompression: true, DisableKeepAlives: !h.grpc,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return (&net.Dialer{Deadline: deadline, KeepAlive: -1}).DialContext(ctx, "tcp", address)
		},
	}
	defer transport.CloseIdleConnections()
	ask := h.overHTTP
	if h.grpc {
		transport.Protocols = &http.Protocols{}
		transport.Protocols.SetUnencryptedHTTP2(true)
		ask = h.overGRPC
	}
	if err := ask(ctx, transport, timeout); err != nil {
		return Outcome{Result: Failure, Output: err.Error()}
	}
	return Outcome{Result: Success}
}

func (h *libraryHandler) overHTTP(ctx context.Context, transport *http.Transport, _ time.Duration) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.address+"/ok", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(io.LimitReader(resp.Body, outputLimit))
	return err
}

func (h *libraryHandler) overGRPC(ctx context.Context, transport *http.Transport, timeout time.Duration) error {
	message := protowire.AppendString(protowire.AppendTag(make([]byte, 5), 1, protowire.BytesType), "")
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-5))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.address+"/grpc.health.v1.Health/Check", bytes.NewReader(message))
	if err != nil {
		return err
	}
	r.Header = http.Header{
		"Content-Type": {"application/grpc"}, "User-Agent": {UserAgent}, "Te": {"trailers"},
		"Grpc-Timeout": {strconv.FormatInt(timeout.Milliseconds(), 10) + "m"},
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a := grpcAnswer{}
	if a.data, err = io.ReadAll(io.LimitReader(resp.Body, outputLimit)); err != nil {
		return err
	}
	if status := resp.Trailer.Get("Grpc-Status"); status != "0" || a.status() != "SERVING" {
		return fmt.Errorf("grpc-status %q, serving status %s", status, a.status())
	}
	return nil
}

// BenchmarkLibrary compares the handlers with the client of net/http: sequential attempts, and a hundred probes with a period of one
// second.
func BenchmarkLibrary(b *testing.B) {
	web, rpc := server(b)
	target := Target{Host: func() string { return "" }}
	for _, c := range []struct {
		name string
		h    func() handler
	}{
		{"http/own", func() handler { return newHandler(httpGet(web, "/ok"), target) }},
		{"http/library", func() handler { return &libraryHandler{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(web))} }},
		{"grpc/own", func() handler { return newHandler(grpcProbe(rpc, ""), target) }},
		{"grpc/library", func() handler {
			return &libraryHandler{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(rpc)), grpc: true}
		}},
	} {
		b.Run("attempt/"+c.name, func(b *testing.B) {
			h := c.h()
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				if o := attempt(b.Context(), h, time.Second); o.Result != Success {
					b.Fatal(o)
				}
			}
			b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-us/op")
		})
		b.Run("hundred/"+c.name, func(b *testing.B) { hundredASecond(b, c.h) })
	}
}

// hundredASecond runs a hundred probes, spread over their period of one second.
func hundredASecond(b *testing.B, newProbe func() handler) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			h, next := newProbe(), time.NewTimer(time.Duration(i)*10*time.Millisecond)
			defer next.Stop()
			for {
				select {
				case <-next.C:
				case <-ctx.Done():
					return
				}
				if o := attempt(ctx, h, time.Second); o.Result != Success && ctx.Err() == nil {
					b.Error(o)
				}
				next.Reset(time.Second)
			}
		})
	}
	runtime.GC()
	began, start := cpu(), time.Now()
	for b.Loop() {
		<-time.After(time.Second)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(1000*(cpu()-began).Seconds()/time.Since(start).Seconds(), "milli-cores")
	b.ReportMetric(float64(memory.HeapInuse+memory.StackInuse)/1024, "KiB-in-use")
	cancel()
	wait.Wait()
}
