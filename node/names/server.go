package names

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

const (
	dnsPort = 53
	// knownWithin is how long a query for one of our names waits, after the start of the agent, for the pods to be
	// known. "I do not know yet" must not be taken for "there is none".
	knownWithin = 3 * time.Second
	// relistenEvery is how often a port that was taken is tried again.
	relistenEvery = 5 * time.Second
	// idleTCP is how long a connection may stay without a query.
	idleTCP = 10 * time.Second
	// maxPending bounds the queries that are being passed on, and the TCP connections.
	maxPending = 512
)

// Config of a Server.
type Config struct {
	// Domain is the one below which our own names are, e.g. cluster.local.
	Domain string
	// Gateways are the addresses to listen on, each with the subnet whose queries are answered. Others get no answer:
	// the host must not become an open resolver for its neighbors.
	Gateways []netip.Prefix
	// Port is 53 if zero.
	Port uint16
	// ResolvConf is the host's; what is not ours is asked there. Empty: nowhere.
	ResolvConf string
	Log        *slog.Logger
}

// Server is the resolver of the pods. Its methods may be called concurrently.
type Server struct {
	cfg     Config
	forward forwarder
	pending chan struct{}
	clients *clients
	turn    atomic.Uint32
	zone    atomic.Pointer[Zone]
	// known is closed with the first zone.
	known     chan struct{}
	closeOnce sync.Once

	mu sync.Mutex
	// listening are the addresses that answer now, guarded by mu.
	listening []netip.Addr
}

// NewServer returns a Server. It does no I/O.
func NewServer(cfg Config) *Server {
	if cfg.Port == 0 {
		cfg.Port = dnsPort
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Domain = normal(cfg.Domain)
	s := &Server{cfg: cfg, pending: make(chan struct{}, maxPending), clients: newClients(), known: make(chan struct{})}
	s.forward.path, s.forward.port = cfg.ResolvConf, dnsPort
	for _, g := range cfg.Gateways {
		s.forward.own = append(s.forward.own, g.Addr())
	}
	return s
}

// SetZone replaces the zone.
func (s *Server) SetZone(z *Zone) {
	s.zone.Store(z)
	s.closeOnce.Do(func() { close(s.known) })
}

// Addresses returns the addresses that the server listens on, in the order of the configuration, for the resolv.conf of pods.
func (s *Server) Addresses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, g := range s.cfg.Gateways {
		if slices.Contains(s.listening, g.Addr()) {
			out = append(out, g.Addr().String())
		}
	}
	return out
}

// Listening is what Listen opened.
type Listening struct {
	sockets []socket
	// missing are the gateways where the port is taken.
	missing []netip.Prefix
}

// socket is one address with its two listeners.
type socket struct {
	gateway netip.Prefix
	udp     *net.UDPConn
	tcp     net.Listener
}

// Listen opens the sockets, so that Addresses tells about them before Run is called. What cannot be opened is
// logged, and tried again by Run.
func (s *Server) Listen(ctx context.Context) Listening {
	var l Listening
	for _, g := range s.cfg.Gateways {
		k, err := s.open(ctx, g)
		if err != nil {
			s.cfg.Log.Warn("the resolver of monopod is unavailable; new pods use those of the host", "address", g.Addr(), "err", err)
			l.missing = append(l.missing, g)
			continue
		}
		l.sockets = append(l.sockets, k)
	}
	return l
}

// open listens on one gateway. The bridge need not have the address yet.
func (s *Server) open(ctx context.Context, g netip.Prefix) (socket, error) {
	at := netip.AddrPortFrom(g.Addr(), s.cfg.Port).String()
	conf := net.ListenConfig{Control: freebind}
	udp, err := conf.ListenPacket(ctx, "udp", at)
	if err != nil {
		return socket{}, err
	}
	tcp, err := conf.Listen(ctx, "tcp", at)
	if err != nil {
		return socket{}, errors.Join(err, udp.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = append(s.listening, g.Addr())
	return socket{gateway: g, udp: udp.(*net.UDPConn), tcp: tcp}, nil
}

// freebind lets a socket have an address that no interface has yet.
func freebind(network, _ string, c syscall.RawConn) error {
	var err error
	set := func(fd uintptr) {
		if network == "udp6" || network == "tcp6" {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
	}
	return errors.Join(c.Control(set), err)
}

// Run answers queries until ctx ends, then returns nil when all goroutines have ended.
func (s *Server) Run(ctx context.Context, l Listening) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, k := range l.sockets {
		all.Go(func() { s.serve(ctx, k) })
	}
	for _, g := range l.missing {
		all.Go(func() {
			if k, ok := s.reopen(ctx, g); ok {
				s.serve(ctx, k)
			}
		})
	}
	<-ctx.Done()
	return nil
}

// reopen tries until the port is free.
func (s *Server) reopen(ctx context.Context, g netip.Prefix) (socket, bool) {
	t := time.NewTicker(relistenEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return socket{}, false
		case <-t.C:
		}
		if k, err := s.open(ctx, g); err == nil {
			s.cfg.Log.Info("the resolver of monopod is available; new pods use it", "address", g.Addr())
			return k, true
		}
	}
}

// serve answers on one address until ctx ends.
func (s *Server) serve(ctx context.Context, k socket) {
	var all sync.WaitGroup
	defer all.Wait()
	stop := context.AfterFunc(ctx, func() {
		_ = k.udp.Close()
		_ = k.tcp.Close()
	})
	defer stop()
	all.Go(func() { s.serveTCP(ctx, k, &all) })
	s.serveUDP(ctx, k, &all)
}

func (s *Server) serveUDP(ctx context.Context, k socket, all *sync.WaitGroup) {
	b := make([]byte, maxMessage)
	for {
		n, from, err := k.udp.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		client := from.Addr().Unmap()
		if err != nil || !k.gateway.Contains(client) || !s.clients.admits(client, time.Now()) {
			continue
		}
		s.handle(ctx, client, b[:n], all, func(answer []byte) {
			if answer != nil {
				_, _ = k.udp.WriteToUDPAddrPort(answer, from)
			}
		})
	}
}

// handle answers one query: at once when that is possible, else in a goroutine.
func (s *Server) handle(ctx context.Context, client netip.Addr, msg []byte, all *sync.WaitGroup, respond func([]byte)) {
	q, code, ok := parseQuery(msg)
	if !ok {
		return
	}
	if r := s.local(q, code); r != nil {
		respond(r.pack(q.size))
		return
	}
	end, ok := s.clients.begin(client, maxWaiting)
	if !ok {
		respond(newReply(q, dnsmessage.RCodeServerFailure).pack(q.size))
		return
	}
	select {
	case s.pending <- struct{}{}:
	default:
		end()
		respond(newReply(q, dnsmessage.RCodeServerFailure).pack(q.size))
		return
	}
	msg = slices.Clone(msg)
	all.Go(func() {
		defer func() { <-s.pending; end() }()
		respond(s.Answer(ctx, "udp", msg))
	})
}

// Answer answers one query that came by network, udp or tcp; nil when it deserves no answer. It may wait for the
// pods to be known, and for the host's resolvers.
func (s *Server) Answer(ctx context.Context, network string, msg []byte) []byte {
	q, code, ok := parseQuery(msg)
	if !ok {
		return nil
	}
	size := q.size
	if network == "tcp" {
		size = maxMessage
	}
	own := s.owns(q)
	if own && !s.await(ctx) {
		return newReply(q, dnsmessage.RCodeServerFailure).pack(size)
	}
	if r := s.local(q, code); r != nil {
		return r.pack(size)
	}
	if own {
		return s.chase(ctx, network, q).pack(size)
	}
	answer, err := s.forward.forward(ctx, network, msg)
	if err != nil {
		s.cfg.Log.Debug("cannot resolve", "name", q.name, "err", err)
		return newReply(q, dnsmessage.RCodeServerFailure).pack(size)
	}
	return answer
}

// owns reports whether a query is about our domain, whether or not the name exists.
func (s *Server) owns(q query) bool {
	if owns(s.cfg.Domain, q.name) {
		return true
	}
	addr, ok := reverseAddr(q.name)
	return ok && s.inSubnets(addr)
}

func (s *Server) inSubnets(a netip.Addr) bool {
	return slices.ContainsFunc(s.cfg.Gateways, func(g netip.Prefix) bool { return g.Contains(a) })
}

// await waits for the first zone.
func (s *Server) await(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	select {
	case <-s.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// local answers what can be answered without waiting for anybody; nil otherwise.
func (s *Server) local(q query, code dnsmessage.RCode) *reply {
	if code != dnsmessage.RCodeSuccess {
		return newReply(q, code)
	}
	z := s.zone.Load()
	if z == nil {
		return nil
	}
	if owns(s.cfg.Domain, q.name) {
		r, alias := z.answer(q, int(s.turn.Add(1)%1024))
		if alias != "" {
			return nil
		}
		return r
	}
	if addr, ok := reverseAddr(q.name); ok && (s.inSubnets(addr) || z.reverse[addr] != "") {
		return z.pointer(q, addr)
	}
	return nil
}

// chase answers for a Service that is another name for something outside.
func (s *Server) chase(ctx context.Context, network string, q query) *reply {
	r, alias := s.zone.Load().answer(q, 0)
	if alias == "" {
		return r // it has changed just now
	}
	name, err := dnsmessage.NewName(alias + ".")
	if err != nil {
		return newReply(q, dnsmessage.RCodeServerFailure)
	}
	ask := dnsmessage.Message{
		Header:    dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: q.question.Type, Class: q.question.Class}},
	}
	var got dnsmessage.Message
	msg, err := ask.Pack()
	if err == nil {
		msg, err = s.forward.forward(ctx, network, msg)
	}
	if err == nil {
		err = got.Unpack(msg)
	}
	if err != nil {
		s.cfg.Log.Debug("cannot resolve", "name", q.name, "alias", alias, "err", err)
		return newReply(q, dnsmessage.RCodeServerFailure)
	}
	r.RCode, r.Authoritative = got.RCode, false
	r.Answers = append(r.Answers, got.Answers...)
	return r
}
