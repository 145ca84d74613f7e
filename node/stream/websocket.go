package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"monopod/internal/streams"
)

// Channels of a WebSocket with a command.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelResize
	channels
)

// connectWebSocket upgrades to a WebSocket.
func (h *Handler) connectWebSocket(w http.ResponseWriter, r *http.Request, o wanted) (*remote, error) {
	use := func(on bool, t wsstream.ChannelType) wsstream.ChannelType {
		if on {
			return t
		}
		return wsstream.IgnoreChannel
	}
	types := make([]wsstream.ChannelType, channels)
	types[channelStdin] = use(o.stdin, wsstream.ReadChannel)
	types[channelStdout], types[channelStderr] = use(o.stdout, wsstream.WriteChannel), use(o.stderr, wsstream.WriteChannel)
	types[channelError], types[channelResize] = wsstream.WriteChannel, use(o.tty, wsstream.ReadChannel) // what nobody reads stops all
	protocols := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range []string{"", protocolV1, protocolV4, protocolV5} {
		protocols[p] = wsstream.ChannelProtocolConfig{Binary: true, Channels: types}
	}
	for _, p := range []string{protocolV1Base64, protocolV4Base64} {
		protocols[p] = wsstream.ChannelProtocolConfig{Binary: false, Channels: types}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	protocol, all, end, err := h.openWebSocket(ctx, cancel, w, r, protocols)
	if err != nil {
		return nil, err
	}
	c := &remote{ctx: ctx, streams: streams.Streams{TTY: o.tty}}
	if o.stdin {
		c.streams.Stdin = all[channelStdin]
	}
	first := channelError
	if o.stderr {
		c.streams.Stderr, first = all[channelStderr], channelStderr
	}
	if o.stdout {
		c.streams.Stdout, first = all[channelStdout], channelStdout
	}
	if o.tty {
		c.streams.Resize = sizes(ctx, all[channelResize])
	}
	_, _ = all[first].Write(nil) // tells the client that it is connected
	c.finish = func(s metav1.Status) {
		_ = writeStatus(all[channelError], protocol, s)
		end()
	}
	return c, nil
}

// openWebSocket upgrades, with ctx ending with the connection and the connection with ctx. end closes it and waits.
func (h *Handler) openWebSocket(ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter, r *http.Request,
	protocols map[string]wsstream.ChannelProtocolConfig,
) (protocol string, all []io.ReadWriteCloser, end func(), err error) {
	// It is us who look whether something moves: with an idle timeout of its own it could say a goodbye that clients take for success.
	conn := wsstream.NewConn(protocols)
	hw := &hijacked{ResponseWriter: w, idle: h.cfg.IdleTimeout, other: true}
	// What it has to say belongs into our log.
	r = r.WithContext(klog.NewContext(r.Context(), logr.FromSlogHandler(debugHandler{h.cfg.Log.Handler()})))
	protocol, all, err = conn.Open(hw, r)
	if err != nil {
		cancel(err)
		return "", nil, nil, fmt.Errorf("the connection cannot be upgraded: %w", err)
	}
	wait := hw.follow(ctx, cancel, hw.ended, func() {})
	return protocol, all, func() {
		defer wait()
		defer cancel(errors.New("it has ended"))
		if ctx.Err() == nil {
			hw.linger.Store(true)
		}
		_ = conn.Close() // says goodbye
		timer := time.NewTimer(lastWord)
		defer timer.Stop()
		select { // what is on its way could be lost with what still comes
		case <-hw.ended:
		case <-ctx.Done():
		case <-timer.C:
		}
	}, nil
}
