package apitest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to a server, as its Mode says.
type Proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	mode  Mode
	conns map[net.Conn]bool
	wg    sync.WaitGroup
	// bytes were passed on.
	bytes int64
}

// Mode is how a Proxy treats connections.
type Mode struct {
	// Refuse has new connections reset at once.
	Refuse bool
	// Silent lets nothing through, either way, and keeps connections open.
	Silent bool
	// Delay is how long each piece of an answer is held back.
	Delay time.Duration
	// CutAfter resets a connection after so many bytes of answers; 0: never.
	CutAfter int64
}

// NewProxy listens on loopback. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{ln: ln, target: target, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.Set(Mode{Refuse: true})
		p.wg.Wait()
	})
	return p
}

// Address is where it listens.
func (p *Proxy) Address() string { return p.ln.Addr().String() }

// Set changes the mode; the connections that there are are reset, unless the mode is a silent one.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	if m.Silent {
		return
	}
	for c := range p.conns {
		reset(c)
	}
}

// Bytes is how much it has passed on.
func (p *Proxy) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

func (p *Proxy) current() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// keep records that a connection exists, or has ended.
func (p *Proxy) keep(c net.Conn, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there {
		p.conns[c] = true
		return
	}
	delete(p.conns, c)
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		if p.current().Refuse {
			reset(c)
			continue
		}
		p.keep(c, true)
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(c net.Conn) {
	defer p.keep(c, false)
	defer c.Close()
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(c)
		return
	}
	p.keep(up, true)
	defer p.keep(up, false)
	defer up.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.pass(up, c, false)
		_ = up.Close()
	}()
	if p.pass(c, up, true) {
		reset(c)
	}
	_ = c.Close()
	<-done
}

// pass copies, in the current mode, and reports whether it has been cut.
func (p *Proxy) pass(to, from net.Conn, answers bool) bool {
	var passed int64
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		m := p.current()
		for m.Silent {
			time.Sleep(20 * time.Millisecond)
			m = p.current()
		}
		if answers && m.Delay > 0 {
			time.Sleep(m.Delay)
		}
		passed += int64(n)
		p.mu.Lock()
		p.bytes += int64(n)
		p.mu.Unlock()
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return false
		}
		if answers && m.CutAfter > 0 && passed > m.CutAfter {
			return true
		}
	}
}

// reset closes a connection so that the other end gets an error.
func reset(c io.Closer) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
