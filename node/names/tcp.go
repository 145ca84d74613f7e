package names

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// serveTCP accepts connections until the listener is closed.
func (s *Server) serveTCP(ctx context.Context, k socket, all *sync.WaitGroup) {
	open := make(chan struct{}, maxPending)
	for {
		c, err := k.tcp.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			s.cfg.Log.Debug("accept", "err", err)
			continue
		}
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		client := from.Addr().Unmap()
		if err != nil || !k.gateway.Contains(client) {
			c.Close()
			continue
		}
		end, ok := s.clients.begin(client, maxConnections)
		if !ok {
			c.Close()
			continue
		}
		select {
		case open <- struct{}{}:
		default:
			end()
			c.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-open; end() }()
			s.connection(ctx, c, client)
		})
	}
}

// connection answers the queries of one TCP connection, one after the other.
func (s *Server) connection(ctx context.Context, c net.Conn, client netip.Addr) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	for {
		_ = c.SetDeadline(time.Now().Add(idleTCP))
		msg, err := readTCP(c)
		if err != nil || !s.clients.admits(client, time.Now()) {
			return
		}
		answer := s.Answer(ctx, "tcp", msg)
		if answer == nil || writeTCP(c, answer) != nil {
			return
		}
	}
}
