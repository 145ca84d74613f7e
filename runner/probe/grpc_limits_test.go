package probe

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// endless is a connection to a server that repeats frames, until it was read too far.
type endless struct {
	frames  []byte
	sent    int
	written int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.sent > 1<<20 {
		return 0, io.EOF
	}
	n := copy(p, e.frames[e.sent%len(e.frames):])
	e.sent += n
	return n, nil
}

func (e *endless) Write(p []byte) (int, error) {
	e.written += len(p)
	return len(p), nil
}

// frames returns encoded frames.
func frames(t *testing.T, write func(f *http2.Framer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(http2.NewFramer(&b, nil)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAnEndlessCallIsReadToALimit: the server of a pod decides what it sends.
func TestAnEndlessCallIsReadToALimit(t *testing.T) {
	var head bytes.Buffer
	if err := hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "103"}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		frames []byte
		err    string
	}{
		"pings":     {frames(t, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }), "longer than 65536 bytes"},
		"settings":  {frames(t, func(f *http2.Framer) error { return f.WriteSettings() }), "longer than 65536 bytes"},
		"no data":   {frames(t, func(f *http2.Framer) error { return f.WriteDataPadded(stream, false, nil, make([]byte, 200)) }), "longer than 65536 bytes"},
		"data":      {frames(t, func(f *http2.Framer) error { return f.WriteData(stream, false, make([]byte, 1000)) }), "too long"},
		"one frame": {[]byte{0xff, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, stream}, "frame too large"},
		"heads": {frames(t, func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true})
		}), "longer than 65536 bytes"},
	} {
		c := &endless{frames: tt.frames}
		_, err := (&grpcHandler{}).call(c, "127.0.0.1:1", time.Second)
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", name, err, tt.err)
		}
		if c.sent > 2*callLimit || c.written > 2*callLimit {
			t.Errorf("%s: %d bytes read, %d written", name, c.sent, c.written)
		}
	}
}
