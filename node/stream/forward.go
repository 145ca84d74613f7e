package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"monopod/manifests"
)

// Protocols for ports: a pair of streams for each connection, also within a WebSocket.
const (
	protocolForward = "portforward.k8s.io"
	protocolTunnel  = "SPDY/3.1+" + protocolForward
)

const (
	// maxForwards is how many connections go through one of a client at once.
	maxForwards = 1000
	// maxForwardPorts is how many ports one WebSocket without SPDY in it can name.
	maxForwardPorts = 64
	// copyChunk is the memory for one direction of a forwarded connection.
	copyChunk = 16 << 10
	// resetDelay is how long after the end of a stream it may turn out that it was cut off.
	resetDelay = time.Second
)

func (h *Handler) portForward(w http.ResponseWriter, r *http.Request) {
	pod, err := h.pod(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	key := manifests.Key{Namespace: pod.Namespace, Name: pod.Name}
	switch {
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		err = h.forwardTunnel(w, r, key)
	case wsstream.IsWebSocketRequest(r):
		err = h.forwardWebSocket(w, r, key)
	default:
		err = h.forwardSPDY(w, r, key)
	}
	if f, ok := errors.AsType[*fault](err); ok {
		h.fail(w, f)
		return
	}
	h.cfg.Log.Debug("port-forward has ended", "pod", key.String(), "err", err)
}

// forwardSPDY serves pairs of streams until the connection ends.
func (h *Handler) forwardSPDY(w http.ResponseWriter, r *http.Request, key manifests.Key) error {
	if _, err := httpstream.Handshake(r, w, []string{protocolForward}); err != nil {
		return err // and the client knows
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	conn, err := h.upgradeSPDY(ctx, w, r, checkForward)
	if err != nil {
		return err
	}
	defer conn.hw.follow(ctx, cancel, conn.CloseChan(), conn.shut)()
	h.forwardAll(ctx, key, conn)
	return context.Cause(ctx)
}

// forwardTunnel is forwardSPDY within a WebSocket.
func (h *Handler) forwardTunnel(w http.ResponseWriter, r *http.Request, key manifests.Key) (err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	conn := h.newWire(w, true)
	err = errors.New("the connection cannot be upgraded")
	server := websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = []string{protocolTunnel}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			ws.PayloadType = websocket.BinaryFrame
			if conn.Connection, err = spdy.NewServerConnection(&bounded{Conn: ws, from: ws}, conn.accept(ctx, checkForward)); err != nil {
				return
			}
			end := conn.hw.follow(ctx, cancel, conn.CloseChan(), conn.shut)
			h.forwardAll(ctx, key, conn)
			err = context.Cause(ctx)
			end()
		},
	}
	server.ServeHTTP(conn.hw, r)
	return err
}

// checkForward returns what is wrong with a new stream.
func checkForward(s httpstream.Stream) error {
	if _, err := portOf(s.Headers().Get(corev1.PortHeader)); err != nil {
		return err
	}
	if t := s.Headers().Get(corev1.StreamType); t != corev1.StreamTypeData && t != corev1.StreamTypeError {
		return fmt.Errorf("unexpected stream of type %q", t)
	}
	return nil
}

func portOf(text string) (int, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, faultf(http.StatusBadRequest, "%q is not a port", text)
	}
	return int(port), nil
}

// pair is what carries one forwarded connection.
type pair struct {
	data, errors httpstream.Stream
	expiry       *time.Timer
}

// forwards are the forwarded connections in one of a client. It belongs to one goroutine.
type forwards struct {
	h    *Handler
	key  manifests.Key
	conn *wire
	// begun are pairs that lack a stream, expired has those that have lacked it for too long.
	begun   map[string]*pair
	expired chan string
	slots   chan struct{}
	wg      sync.WaitGroup
}

// forwardAll serves pairs of streams until ctx ends, and waits for them.
func (h *Handler) forwardAll(ctx context.Context, key manifests.Key, conn *wire) {
	f := &forwards{h: h, key: key, conn: conn, begun: map[string]*pair{}, expired: make(chan string), slots: make(chan struct{}, maxForwards)}
	defer f.wg.Wait()
	for {
		select {
		case <-ctx.Done():
			for _, p := range f.begun {
				p.expiry.Stop()
			}
			return
		case id := <-f.expired:
			if p := f.begun[id]; p != nil {
				delete(f.begun, id)
				conn.drop(p.data, p.errors)
			}
		case s := <-conn.arrived:
			if id, p := f.add(ctx, s); p != nil {
				delete(f.begun, id)
				f.start(ctx, p)
			}
		}
	}
}

// add notes a new stream and returns its pair when that is complete.
func (f *forwards) add(ctx context.Context, s httpstream.Stream) (string, *pair) {
	id := requestID(s)
	p := f.begun[id]
	if p == nil {
		if len(f.begun) == maxForwards {
			f.conn.drop(s)
			return "", nil
		}
		p = &pair{expiry: time.AfterFunc(f.h.cfg.CreationTimeout, func() {
			select {
			case f.expired <- id:
			case <-ctx.Done():
			}
		})}
		f.begun[id] = p
	}
	slot := &p.data
	if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
		slot = &p.errors
	}
	if *slot != nil {
		f.conn.drop(s)
		return "", nil
	}
	*slot = s
	if p.data == nil || p.errors == nil {
		return "", nil
	}
	p.expiry.Stop()
	return id, p
}

// start connects a pair, unless there are too many.
func (f *forwards) start(ctx context.Context, p *pair) {
	select {
	case f.slots <- struct{}{}:
		f.wg.Go(func() {
			defer func() { <-f.slots }()
			f.h.forwardPair(ctx, f.key, f.conn, p)
		})
	default:
		_, _ = io.WriteString(p.errors, "too many connections at once")
		_ = p.errors.Close()
		f.conn.drop(p.data, p.errors)
	}
}

// requestID tells which streams belong together. Clients that do not say open the one for errors first.
func requestID(s httpstream.Stream) string {
	if id := s.Headers().Get(corev1.PortForwardRequestIDHeader); id != "" {
		return id
	}
	first := s.Identifier()
	if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
		first -= 2
	}
	return "stream " + strconv.FormatUint(uint64(first), 10)
}

// forwardPair connects a pair of streams to its port.
func (h *Handler) forwardPair(ctx context.Context, key manifests.Key, conn *wire, p *pair) {
	defer conn.drop(p.data, p.errors)
	port, _ := portOf(p.data.Headers().Get(corev1.PortHeader)) // it was checked
	c, err := h.cfg.Runtime.Dial(ctx, key, port)
	if err != nil {
		_, _ = fmt.Fprintf(p.errors, "error forwarding port %d to pod %s: %v", port, key, err)
		_ = p.errors.Close()
		_ = p.data.Reset()
		return
	}
	pump(ctx, p.data, c)
	_ = p.errors.Close()
}

// pump copies both ways until both have ended, and closes c. The end of one way is passed on, and does not end the other.
func pump(ctx context.Context, s io.ReadWriteCloser, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := copyBuffer(c, s)
		half, ok := c.(interface{ CloseWrite() error })
		if !ok || err != nil || wasReset(s) {
			_ = c.Close()
			return
		}
		_ = half.CloseWrite()
		// That the stream was cut off may be known a moment after its end.
		time.AfterFunc(resetDelay, func() {
			if wasReset(s) {
				_ = c.Close()
			}
		})
	})
	if _, err := copyBuffer(s, c); err != nil {
		_ = c.Close()
		if r, ok := s.(httpstream.Stream); ok {
			_ = r.Reset()
		}
	}
	_ = s.Close()
	wg.Wait()
	_ = c.Close()
}

func copyBuffer(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copyChunk))
}

// wasReset tells the end of what a client sends from its end as a whole, which SPDY reports the same way.
func wasReset(s any) bool {
	f, ok := s.(interface{ IsFinished() bool })
	return ok && f.IsFinished()
}

// forwardWebSocket serves the ports in the query, each on two channels that begin with its number.
func (h *Handler) forwardWebSocket(w http.ResponseWriter, r *http.Request, key manifests.Key) error {
	var ports []int
	for _, list := range r.URL.Query()[corev1.PortHeader] {
		for text := range strings.SplitSeq(list, ",") {
			port, err := portOf(text)
			if err != nil {
				return err
			}
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 || len(ports) > maxForwardPorts {
		return faultf(http.StatusBadRequest, "the query has %d ports; 1 to %d are allowed", len(ports), maxForwardPorts)
	}
	var types []wsstream.ChannelType
	for range ports {
		types = append(types, wsstream.ReadWriteChannel, wsstream.WriteChannel)
	}
	protocols := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range []string{"", protocolV4} {
		protocols[p] = wsstream.ChannelProtocolConfig{Binary: true, Channels: types}
	}
	protocols[protocolV4Base64] = wsstream.ChannelProtocolConfig{Binary: false, Channels: types}
	ctx, cancel := context.WithCancelCause(r.Context())
	_, all, end, err := h.openWebSocket(ctx, cancel, w, r, protocols)
	if err != nil {
		return err
	}
	defer end()
	var wg sync.WaitGroup
	for i, port := range ports {
		wg.Go(func() { h.forwardChannels(ctx, key, port, all[2*i], all[2*i+1]) })
	}
	wg.Wait()
	return nil
}

func (h *Handler) forwardChannels(ctx context.Context, key manifests.Key, port int, data, errs io.ReadWriteCloser) {
	number := binary.LittleEndian.AppendUint16(nil, uint16(port))
	_, _ = data.Write(number)
	_, _ = errs.Write(number)
	c, err := h.cfg.Runtime.Dial(ctx, key, port)
	if err != nil {
		_, _ = fmt.Fprintf(errs, "error forwarding port %d to pod %s: %v", port, key, err)
		return
	}
	pump(ctx, data, c)
}
