package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"monopod/internal/cause"
	"monopod/runner/httpget"
)

// grpcHandler calls grpc.health.v1.Health/Check.
//
// It exchanges the few HTTP/2 frames of one call itself, which costs a third of the CPU time of net/http (ADR 0011).
type grpcHandler struct {
	address func() string
	service string
	// secure means TLS without certificate verification.
	secure bool

	mu sync.Mutex
	// last is the previous request; the next one usually is the same. Guarded by mu.
	last grpcRequest
}

// grpcRequest is an encoded request with its parameters.
type grpcRequest struct {
	address string
	timeout time.Duration
	bytes   []byte
}

// servingStatus are the serving statuses of the protocol, by number.
//
//nolint:gochecknoglobals // the names in a protocol
var servingStatus = []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

func (h *grpcHandler) ask(ctx context.Context, timeout time.Duration) Outcome {
	address, deadline := h.address(), time.Now().Add(timeout)
	c, err := h.dial(ctx, address, deadline)
	switch {
	case err != nil && late(err):
		return Outcome{Result: Failure, Output: fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, err), Fault: cause.TimedOut}
	case err != nil:
		return Outcome{Result: Failure, Output: fmt.Sprintf("error: failed to connect service at %q: %v", address, err), Fault: faultOf(err)}
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	a, err := h.call(c, address, timeout)
	switch {
	case err != nil && late(err) || err == nil && a.code == codes.DeadlineExceeded:
		return Outcome{Result: Failure, Output: fmt.Sprintf("timeout: health rpc did not complete within %v", timeout), Fault: cause.TimedOut}
	case err != nil:
		return Outcome{Result: Failure, Output: fmt.Sprintf("error: health rpc probe failed: %v", err), Fault: faultOf(err)}
	case a.code == codes.Unimplemented:
		return Outcome{Result: Failure, Output: "this server does not implement the grpc health protocol (grpc.health.v1.Health): " + a.message}
	case a.code != codes.OK:
		return Outcome{Result: Failure, Output: fmt.Sprintf("error: health rpc probe failed: %s: %s", a.code, a.message)}
	case a.status() != "SERVING":
		return Outcome{Result: Failure, Output: fmt.Sprintf("service unhealthy (responded with %q)", a.status())}
	}
	return Outcome{Result: Success, Output: "service healthy"}
}

func (h *grpcHandler) dial(ctx context.Context, address string, deadline time.Time) (httpget.Conn, error) {
	if h.secure {
		return httpget.DialTLS(ctx, address, deadline, http2.NextProtoTLS)
	}
	return httpget.Dial(ctx, address, deadline)
}

func (h *grpcHandler) scheme() string {
	if h.secure {
		return "https"
	}
	return "http"
}

func late(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// grpcAnswer is the answer to a call.
type grpcAnswer struct {
	data    []byte
	code    codes.Code
	message string
	// seen is set once the server has acknowledged our settings.
	seen bool
	// hasStatus is set once a grpc-status has been received.
	hasStatus bool
	http      string
}

// status returns the name of the serving status.
func (a *grpcAnswer) status() string {
	const prefix = 5 // compression flag and length
	var status uint64
	for b := a.data[min(prefix, len(a.data)):]; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			break
		}
		b = b[n:]
		if number == 1 && kind == protowire.VarintType {
			status, _ = protowire.ConsumeVarint(b)
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			break
		}
		b = b[n:]
	}
	if status < uint64(len(servingStatus)) {
		return servingStatus[status]
	}
	return strconv.FormatUint(status, 10)
}

// stream is the id of the only stream of a connection.
const stream = 1

// readBuffer is enough for all frames of an ordinary answer: reading and writing cost the most here.
const readBuffer = 1024

// Limits of an answer. No more than frameLimit may be sent in a frame without our permission, but the library would reserve 16 MiB if a server
// announced them. callLimit bounds all frames together, and so the replies to them.
const (
	frameLimit = 16 << 10
	callLimit  = 64 << 10
)

// call sends the request in one piece and reads frames until the answer is complete. Replies to frames of the server are sent only once
// all input has been read, because the answer usually is complete by then, and not before the server has acknowledged our settings,
// which it does unprompted.
func (h *grpcHandler) call(c io.ReadWriter, address string, timeout time.Duration) (*grpcAnswer, error) {
	var out bytes.Buffer
	limited := &io.LimitedReader{R: c, N: callLimit}
	in := bufio.NewReaderSize(limited, readBuffer)
	f := http2.NewFramer(&out, in)
	f.SetMaxReadFrameSize(frameLimit)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.MaxHeaderListSize = outputLimit
	f.SetReuseFrames()
	request, err := h.request(address, timeout)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	a := &grpcAnswer{}
	for {
		if in.Buffered() == 0 && a.seen && out.Len() > 0 {
			if _, err := out.WriteTo(c); err != nil {
				return nil, err
			}
		}
		frame, err := f.ReadFrame()
		if err != nil && limited.N <= 0 {
			err = fmt.Errorf("the answer is longer than %d bytes", callLimit)
		}
		if err != nil {
			return nil, err
		}
		if over, err := a.take(f, frame); over || err != nil {
			return a, err
		}
	}
}

// request returns all frames that are sent without waiting for the server.
func (h *grpcHandler) request(address string, timeout time.Duration) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.bytes != nil && h.last.address == address && h.last.timeout == timeout {
		return h.last.bytes, nil
	}
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	if err := h.writeRequest(http2.NewFramer(&out, nil), address, timeout); err != nil {
		return nil, err
	}
	h.last = grpcRequest{address, timeout, out.Bytes()}
	return h.last.bytes, nil
}

func (h *grpcHandler) writeRequest(f *http2.Framer, address string, timeout time.Duration) error {
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: h.scheme()},
		{Name: ":path", Value: "/grpc.health.v1.Health/Check"},
		{Name: ":authority", Value: address},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: UserAgent},
		{Name: "te", Value: "trailers"},
		{Name: "grpc-timeout", Value: strconv.FormatInt(timeout.Milliseconds(), 10) + "m"},
	} {
		if err := enc.WriteField(field); err != nil {
			return err
		}
	}
	message := make([]byte, 5, 64)
	if h.service != "" {
		message = protowire.AppendTag(message, 1, protowire.BytesType)
		message = protowire.AppendString(message, h.service)
	}
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-5))
	return errors.Join(
		f.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true}),
		f.WriteData(stream, true, message),
	)
}

// take adds a frame to the answer, or writes the reply to it. It reports whether the answer is complete.
func (a *grpcAnswer) take(f *http2.Framer, frame http2.Frame) (over bool, err error) {
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if frame.IsAck() {
			a.seen = true
			return false, nil
		}
		return false, f.WriteSettingsAck()
	case *http2.PingFrame:
		if !frame.IsAck() {
			return false, f.WritePing(true, frame.Data)
		}
	case *http2.GoAwayFrame:
		if frame.ErrCode != http2.ErrCodeNo || frame.LastStreamID < stream {
			return false, fmt.Errorf("the server closed the connection: %s", frame.ErrCode)
		}
	case *http2.RSTStreamFrame:
		if !a.hasStatus {
			return false, fmt.Errorf("the server ended the call: %s", frame.ErrCode)
		}
		return true, nil
	case *http2.DataFrame:
		if len(a.data)+len(frame.Data()) > outputLimit {
			return false, errors.New("the answer is too long")
		}
		a.data = append(a.data, frame.Data()...)
		return a.end(frame.StreamEnded())
	case *http2.MetaHeadersFrame:
		a.headers(frame)
		return a.end(frame.StreamEnded())
	}
	return false, nil
}

func (a *grpcAnswer) headers(frame *http2.MetaHeadersFrame) {
	for _, field := range frame.Fields {
		switch field.Name {
		case ":status":
			a.http = field.Value
		case "grpc-status":
			n, err := strconv.ParseUint(field.Value, 10, 32)
			if err != nil {
				n = uint64(codes.Unknown)
			}
			a.code, a.hasStatus = codes.Code(n), true
		case "grpc-message":
			a.message = field.Value
		}
	}
}

func (a *grpcAnswer) end(ended bool) (bool, error) {
	switch {
	case !ended:
		return false, nil
	case a.hasStatus:
		return true, nil
	case a.http == "404":
		a.code, a.message = codes.Unimplemented, "HTTP status 404"
		return true, nil
	}
	return false, fmt.Errorf("the answer has no gRPC status (HTTP status %q)", a.http)
}
