package names

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"monopod/internal/regular"
)

const (
	// tryTimeout is how long one resolver of the host has before the next one is asked; clients wait 5 s.
	tryTimeout = 1500 * time.Millisecond
	// forwardTimeout is how long it may take altogether.
	forwardTimeout = 4500 * time.Millisecond
	// rereadEvery is the longest time before the host's resolv.conf is read again.
	rereadEvery = time.Second
	// maxResolvConf is more than a resolv.conf has.
	maxResolvConf = 64 << 10
	// maxMessage is the largest message there can be.
	maxMessage = 65535
)

var errNoResolvers = errors.New("the host has no resolvers")

// forwarder passes queries on to the resolvers of the host.
type forwarder struct {
	// path is the host's resolv.conf; empty: there is none.
	path string
	// port is that of the host's resolvers.
	port uint16
	// own are addresses that must not be asked: we listen there.
	own []netip.Addr

	mu sync.Mutex
	// All below is guarded by mu.
	readAt  time.Time
	modTime time.Time
	servers []netip.AddrPort
	// good is the index of the resolver that answered last.
	good int
}

// resolvers returns those of the host, the one that answered last first.
func (f *forwarder) resolvers() []netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.readAt) > rereadEvery {
		f.rereadLocked()
	}
	return slices.Concat(f.servers[f.good:], f.servers[:f.good])
}

func (f *forwarder) rereadLocked() {
	f.readAt = time.Now()
	info, err := os.Stat(f.path)
	if err != nil {
		f.servers, f.good, f.modTime = nil, 0, time.Time{}
		return
	}
	if info.ModTime().Equal(f.modTime) {
		return
	}
	b, err := regular.ReadFile(f.path, maxResolvConf)
	if err != nil {
		return
	}
	f.modTime, f.good = info.ModTime(), 0
	f.servers = nameservers(string(b), f.port, f.own)
}

// nameservers returns the servers of a resolv.conf, without the excluded ones.
func nameservers(text string, port uint16, not []netip.Addr) []netip.AddrPort {
	var out []netip.AddrPort
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil && !slices.Contains(not, a.Unmap()) {
			out = append(out, netip.AddrPortFrom(a, port))
		}
	}
	return out
}

// worked notes which resolver to ask first from now on.
func (f *forwarder) worked(server netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.servers, server); i >= 0 {
		f.good = i
	}
}

// forward asks the host's resolvers until one answers. network is udp or tcp, as the client asked.
func (f *forwarder) forward(ctx context.Context, network string, msg []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	servers := f.resolvers()
	err := errNoResolvers
	var poor []byte
	for range 2 {
		for _, server := range servers {
			var answer []byte
			if answer, err = ask(ctx, network, server, msg); err != nil {
				continue
			}
			if code := answer[3] & 0xf; code == byte(dnsmessage.RCodeServerFailure) || code == byte(dnsmessage.RCodeRefused) {
				poor = answer
				continue
			}
			f.worked(server)
			return answer, nil
		}
		if poor != nil {
			return poor, nil
		}
		if ctx.Err() != nil || len(servers) == 0 {
			break
		}
	}
	return nil, err
}

// ask sends a query to one resolver. Its id is replaced on the way, so that only a process that sees it can forge an answer.
func ask(ctx context.Context, network string, server netip.AddrPort, msg []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })() // at the end of the agent: at once
	out := slices.Clone(msg)
	id := uint16(rand.Uint32())
	binary.BigEndian.PutUint16(out, id)
	answer, err := exchange(c, network, out)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", server, err)
	}
	copy(answer, msg[:2])
	return answer, nil
}

// exchange sends a query and returns the answer to it, skipping whatever else arrives.
func exchange(c net.Conn, network string, msg []byte) ([]byte, error) {
	if network == "tcp" {
		if err := writeTCP(c, msg); err != nil {
			return nil, err
		}
		answer, err := readTCP(c)
		if err == nil && !answers(msg, answer) {
			err = errors.New("the response is for another query")
		}
		return answer, err
	}
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	// Many queries may wait for seconds for a dead server, so the large buffer is taken only once a datagram has arrived.
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		answer, err := readDatagram(raw)
		if err != nil {
			return nil, err
		}
		if answers(msg, answer) {
			return answer, nil
		}
	}
}

// readDatagram waits for a datagram and reads it whole.
func readDatagram(raw syscall.RawConn) (data []byte, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		var n int
		if n, _, err = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT); err == nil {
			data = make([]byte, n)
			n, _, err = unix.Recvfrom(int(fd), data, unix.MSG_DONTWAIT)
			data = data[:max(n, 0)]
		}
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return data, cmp.Or(waited, err)
}

// answers reports whether a message is the answer to a query.
func answers(question, answer []byte) bool {
	var p, q dnsmessage.Parser
	h, err := p.Start(answer)
	asked, err2 := q.Start(question)
	if err != nil || err2 != nil || !h.Response || h.ID != asked.ID {
		return false
	}
	got, err := p.Question()
	want, err2 := q.Question()
	if err2 != nil {
		return false
	}
	if errors.Is(err, dnsmessage.ErrSectionDone) {
		return h.RCode != dnsmessage.RCodeSuccess // some resolvers leave it out when they refuse
	}
	return err == nil && got.Type == want.Type && got.Class == want.Class && strings.EqualFold(got.Name.String(), want.Name.String())
}

// readTCP and writeTCP put the length before a message.
func readTCP(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeTCP(w io.Writer, msg []byte) error {
	if len(msg) > maxMessage {
		return errors.New("message too long")
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}
