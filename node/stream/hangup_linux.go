package stream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// hijacked is a response whose connection is known after it was taken over.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
	// idle is how long nothing may move.
	idle time.Duration
	last atomic.Int64
	// linger makes the next Close only shut down writing. ended is closed at the end of the input.
	linger atomic.Bool
	ended  chan bool
	once   sync.Once
	// other reports that the input is not SPDY.
	other bool
}

// Hijack implements http.Hijacker, also for responses in wrappers.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = conn
	h.moved()
	h.ended = make(chan bool)
	var c net.Conn = &moving{Conn: conn, from: rw.Reader, h: h}
	if !h.other {
		c = &bounded{Conn: c, from: c}
	}
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

func (h *hijacked) moved() { h.last.Store(time.Now().UnixNano()) }

// watchIdle calls idle after each period without traffic.
func (h *hijacked) watchIdle(limit time.Duration, idle func()) (stop func()) {
	var mu sync.Mutex
	var t *time.Timer
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()
		rest := limit - time.Since(time.Unix(0, h.last.Load()))
		if rest > 0 {
			t.Reset(rest)
			return
		}
		idle()
	})
	return func() { t.Stop() }
}

// moving notes when something comes or goes.
type moving struct {
	net.Conn
	// from is what has been read from the connection already, and then the rest.
	from io.Reader
	h    *hijacked
}

// Read implements net.Conn.
func (m *moving) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.h.moved()
	if err != nil {
		m.h.once.Do(func() { close(m.h.ended) })
	}
	return n, err
}

// Write implements net.Conn.
func (m *moving) Write(p []byte) (int, error) {
	n, err := m.Conn.Write(p)
	m.h.moved()
	return n, err
}

// Close implements net.Conn. A second call does nothing.
func (m *moving) Close() error {
	if c, ok := m.Conn.(interface{ CloseWrite() error }); ok && m.h.linger.CompareAndSwap(true, false) {
		return c.CloseWrite()
	}
	m.h.once.Do(func() { close(m.h.ended) })
	_ = m.Conn.Close()
	return nil
}

// follow ends ctx by cancel when the client is gone, as the kernel or closed tell, or nothing moves, and closes the
// connection with ctx, and then what shut does. The function that it returns waits for that; call it after cancel.
func (h *hijacked) follow(ctx context.Context, cancel context.CancelCauseFunc, closed <-chan bool, shut func()) (end func()) {
	var wg sync.WaitGroup
	stop := func() {}
	stopIdle := h.watchIdle(h.idle, func() { cancel(errIdle) })
	if f := duplicate(h.conn); f != nil {
		wg.Go(func() {
			if hungUp(f) {
				cancel(errHungUp)
			}
		})
		stop = func() { _ = f.Close() }
	}
	wg.Go(func() {
		select {
		case <-closed:
			cancel(errHungUp)
		case <-ctx.Done():
		}
		_ = h.conn.Close()
		stop()
		stopIdle()
		shut()
	})
	return wg.Wait
}

// duplicate returns another descriptor of a socket, nil when there is none.
func duplicate(conn net.Conn) *os.File {
	for {
		t, wrapped := conn.(interface{ NetConn() net.Conn })
		if !wrapped {
			break
		}
		conn = t.NetConn()
	}
	s, ok := conn.(interface{ File() (*os.File, error) })
	if !ok {
		return nil
	}
	f, err := s.File()
	if err != nil {
		return nil
	}
	return f
}

// hungUp waits until the other end of a socket is closed, whether or not anybody reads what came before; false: f was
// closed. Without it a client that has sent more than is read would never be seen to go. With TCP, where its end comes
// behind all that it has sent, the kernels give such a connection up after minutes.
func hungUp(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	})
	return err == nil
}
