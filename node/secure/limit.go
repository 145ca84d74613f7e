package secure

import (
	"net"
	"net/netip"
	"sync"
)

// limited is a listener that closes new connections immediately if there are too many. They are not queued: clients that keep all
// connections open would make all others wait.
type limited struct {
	net.Listener
	max int
	// local exempts loopback addresses from the limit for one address.
	local bool

	mu sync.Mutex
	// open counts connections by origin, see originOf.
	open map[netip.Addr]int
	all  int
}

func newLimited(ln net.Listener, limit int, local bool) *limited {
	return &limited{Listener: ln, max: limit, local: local, open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := originOf(c)
		if l.enter(from) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		_ = c.Close() // it gets no answer
	}
}

// originOf returns the address of a client; for IPv6 its /64, because one machine may have all addresses of that.
func originOf(c net.Conn) netip.Addr {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	addr := ap.Addr().Unmap()
	if addr.Is4() || addr.IsLoopback() {
		return addr
	}
	return netip.PrefixFrom(addr, 64).Masked().Addr().WithZone(addr.Zone())
}

func (l *limited) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.max || l.open[from] >= (l.max+1)/2 && (!l.local || !from.IsLoopback()) {
		return false
	}
	l.all++
	l.open[from]++
	return true
}

func (l *limited) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.open[from]--; l.open[from] <= 0 {
		delete(l.open, from)
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the underlying connection, like that of crypto/tls: streams watch it to detect that the client is gone.
func (c *counted) NetConn() net.Conn { return c.Conn }
