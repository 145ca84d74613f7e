package stream

import (
	"errors"
	"io"
	"net"
)

// maxFrame is the longest accepted SPDY frame: clients send up to 32 KiB at once. The protocol allows 16 MiB, and hundreds of such frames
// would be buffered before the client is blocked.
const maxFrame = 1 << 20

// bounded is a connection on which no SPDY frame is too long.
type bounded struct {
	net.Conn
	// from is what has been read from the connection already, and then the rest.
	from io.Reader
	head []byte
	left int
	err  error
}

var errFrame = errors.New("a frame of SPDY is too long")

// Read implements net.Conn.
func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.from.Read(p)
	if !b.scan(p[:n]) {
		b.err = errFrame
		return 0, b.err
	}
	return n, err
}

// scan follows the frames: a header of eight bytes whose last three are the length of the body.
func (b *bounded) scan(p []byte) bool {
	for len(p) > 0 {
		if b.left > 0 {
			n := min(b.left, len(p))
			b.left, p = b.left-n, p[n:]
			continue
		}
		n := min(8-len(b.head), len(p))
		b.head, p = append(b.head, p[:n]...), p[n:]
		if len(b.head) < 8 {
			return true
		}
		b.left = int(b.head[5])<<16 | int(b.head[6])<<8 | int(b.head[7])
		b.head = b.head[:0]
		if b.left > maxFrame {
			return false
		}
	}
	return true
}

// Close implements net.Conn. A second call does nothing.
func (b *bounded) Close() error {
	_ = b.Conn.Close()
	return nil
}
