package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monopod/internal/streams"
)

// Protocols for commands. The later ones have a status that can be read by programs (v4), sizes of terminals (v3), and over
// WebSocket ends of streams (v5).
const (
	protocolV1 = "channel.k8s.io"
	protocolV2 = "v2.channel.k8s.io"
	protocolV3 = "v3.channel.k8s.io"
	protocolV4 = "v4.channel.k8s.io"
	protocolV5 = "v5.channel.k8s.io"

	protocolV1Base64 = "base64.channel.k8s.io"
	protocolV4Base64 = "v4.base64.channel.k8s.io"
)

// wire is a connection with SPDY on it.
type wire struct {
	httpstream.Connection
	// arrived has the streams that the client opens, until settled is closed: then there are all, and more are refused.
	arrived chan httpstream.Stream
	settled chan struct{}
	hw      *hijacked

	mu   sync.Mutex // guards open
	open map[httpstream.Stream]bool
}

// newWire returns a wire whose Connection is to be set.
func (h *Handler) newWire(w http.ResponseWriter, other bool) *wire {
	return &wire{
		arrived: make(chan httpstream.Stream), settled: make(chan struct{}), open: map[httpstream.Stream]bool{},
		hw: &hijacked{ResponseWriter: w, idle: h.cfg.IdleTimeout, other: other},
	}
}

// upgradeSPDY upgrades the connection, and passes on the streams that the client opens and check lets in, until ctx ends.
func (h *Handler) upgradeSPDY(ctx context.Context, w http.ResponseWriter, r *http.Request, check func(httpstream.Stream) error) (*wire, error) {
	c := h.newWire(w, false)
	if c.Connection = spdy.NewResponseUpgrader().UpgradeResponse(c.hw, r, c.accept(ctx, check)); c.Connection == nil {
		return nil, errors.New("the connection cannot be upgraded")
	}
	return c, nil
}

// accept is what to do with a new stream.
func (c *wire) accept(ctx context.Context, check func(httpstream.Stream) error) httpstream.NewStreamHandler {
	return func(s httpstream.Stream, _ <-chan struct{}) error {
		select {
		case <-c.settled:
			return errSettled
		default:
		}
		if err := check(s); err != nil {
			return err
		}
		// A write before the reply would block until the reply, for good if that fails: so the reply comes first.
		if r, ok := s.(interface{ SendReply(http.Header, bool) error }); ok {
			if err := r.SendReply(http.Header{}, false); err != nil {
				return err
			}
		}
		c.mu.Lock()
		c.open[s] = true
		c.mu.Unlock()
		select {
		case c.arrived <- s:
			return nil
		case <-c.settled:
			c.drop(s)
			return errSettled
		case <-ctx.Done():
			c.drop(s)
			return context.Cause(ctx)
		}
	}
}

// errSettled refuses a stream. One that waits to be taken would keep what comes for others waiting behind it.
var errSettled = errors.New("the client has opened all streams that it has announced")

// drop ends streams; what has not ended by itself is cut off.
func (c *wire) drop(all ...httpstream.Stream) {
	for _, s := range all {
		if s == nil {
			continue
		}
		_ = s.Reset()
		c.RemoveStreams(s)
		c.mu.Lock()
		delete(c.open, s)
		c.mu.Unlock()
	}
}

// shut closes everything once nothing more can be sent. A stream with unread data would block all others.
func (c *wire) shut() {
	c.mu.Lock()
	var all []httpstream.Stream
	for s := range c.open {
		all = append(all, s)
	}
	c.mu.Unlock()
	c.drop(all...)
	_ = c.Close()
}

// connectSPDY upgrades to SPDY and waits for the streams.
func (h *Handler) connectSPDY(w http.ResponseWriter, r *http.Request, o wanted) (*remote, error) {
	protocol, err := httpstream.Handshake(r, w, []string{protocolV4, protocolV3, protocolV2, protocolV1})
	if err != nil {
		return nil, err // and the client knows
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	conn, err := h.upgradeSPDY(ctx, w, r, func(httpstream.Stream) error { return nil })
	if err != nil {
		cancel(err)
		return nil, err
	}
	end := conn.hw.follow(ctx, cancel, conn.CloseChan(), conn.shut)
	all, err := await(ctx, conn.arrived, wantedStreams(o, protocol), h.cfg.CreationTimeout)
	if err != nil {
		cancel(err)
		end()
		return nil, err
	}
	close(conn.settled)
	c := &remote{ctx: ctx, streams: streams.Streams{TTY: o.tty}}
	if s := all[corev1.StreamTypeStdin]; s != nil {
		c.streams.Stdin = s
	}
	if s := all[corev1.StreamTypeStdout]; s != nil {
		c.streams.Stdout = s
	}
	if s := all[corev1.StreamTypeStderr]; s != nil {
		c.streams.Stderr = s
	}
	if s := all[corev1.StreamTypeResize]; s != nil {
		c.streams.Resize = sizes(ctx, s)
	}
	c.finish = func(s metav1.Status) {
		defer end()
		defer cancel(errors.New("it has ended"))
		finishSPDY(ctx, conn, all, protocol, s)
	}
	return c, nil
}

// finishSPDY ends the streams, with the status on the one for errors, and lets the client close the connection: what is on
// its way to it could be lost otherwise.
func finishSPDY(ctx context.Context, conn httpstream.Connection, all map[string]httpstream.Stream, protocol string, s metav1.Status) {
	if ctx.Err() != nil {
		return
	}
	for _, name := range []string{corev1.StreamTypeStdin, corev1.StreamTypeResize} {
		if all[name] != nil {
			_ = all[name].Reset() // what still comes is dropped
		}
	}
	for _, name := range []string{corev1.StreamTypeStdout, corev1.StreamTypeStderr} {
		if all[name] != nil {
			_ = all[name].Close()
		}
	}
	_ = writeStatus(all[corev1.StreamTypeError], protocol, s)
	_ = all[corev1.StreamTypeError].Close()
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-conn.CloseChan():
	case <-ctx.Done():
	case <-timer.C:
	}
}

// wantedStreams are the types of the streams that a client opens.
func wantedStreams(o wanted, protocol string) map[string]bool {
	return map[string]bool{
		corev1.StreamTypeError: true, corev1.StreamTypeStdin: o.stdin, corev1.StreamTypeStdout: o.stdout, corev1.StreamTypeStderr: o.stderr,
		corev1.StreamTypeResize: o.tty && (protocol == protocolV4 || protocol == protocolV3),
	}
}

// await collects one stream of each wanted type.
func await(ctx context.Context, arrived <-chan httpstream.Stream, types map[string]bool, patience time.Duration) (map[string]httpstream.Stream, error) {
	missing := 0
	for _, wanted := range types {
		if wanted {
			missing++
		}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	all := map[string]httpstream.Stream{}
	for len(all) < missing {
		select {
		case s := <-arrived:
			t := s.Headers().Get(corev1.StreamType)
			if !types[t] || all[t] != nil {
				return nil, fmt.Errorf("unexpected stream of type %q", t)
			}
			all[t] = s
		case <-timer.C:
			return nil, fmt.Errorf("the client has not opened its streams within %s", patience)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return all, nil
}
