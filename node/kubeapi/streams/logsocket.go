package streams

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
)

// WebSocket protocols for logs: binary, or base64 text.
const (
	protocolBinary = "binary.k8s.io"
	protocolBase64 = "base64.binary.k8s.io"
)

// logSocket sends a log over a WebSocket. It returns errors from before the upgrade.
func (h *Handler) logSocket(w http.ResponseWriter, r *http.Request, path string, q url.Values) error {
	ctx, cancel := context.WithCancel(r.Context())
	from, to := io.Pipe()
	p := &piped{to: to, header: http.Header{}, begun: make(chan struct{})}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer from.Close()
	wg.Go(func() {
		h.cfg.Streams.ServeHTTP(p, kubelet(r.WithContext(ctx), path, q))
		p.begin()
		_ = to.Close()
	})
	timer := time.NewTimer(h.silence)
	defer timer.Stop()
	select {
	case <-p.begun:
	case <-timer.C:
	}
	if code, text := p.failure(); code != 0 {
		return statusOf(code, text)
	}
	server := websocket.Server{
		Handshake: chooseProtocol,
		Handler: func(ws *websocket.Conn) {
			wg.Go(func() { // clients send nothing but the close
				_, _ = io.Copy(io.Discard, ws)
				cancel()
				_ = from.Close()
			})
			h.copyLog(ws, from)
			_ = ws.Close()
		},
	}
	server.ServeHTTP(&answer{ResponseWriter: w}, r)
	return nil
}

// chooseProtocol selects the first known protocol. A client that names none gets binary.
func chooseProtocol(c *websocket.Config, _ *http.Request) error {
	c.Protocol = slices.DeleteFunc(c.Protocol, func(p string) bool { return strings.HasPrefix(p, bearer) })
	for _, p := range c.Protocol {
		if p == protocolBinary || p == protocolBase64 {
			c.Protocol = []string{p}
			return nil
		}
	}
	if len(c.Protocol) > 0 {
		return websocket.ErrBadWebSocketProtocol
	}
	return nil
}

// copyLog sends a message per chunk of the log, after an empty first one.
func (h *Handler) copyLog(ws *websocket.Conn, from io.Reader) {
	text := slices.Contains(ws.Config().Protocol, protocolBase64)
	buffer := make([]byte, 16<<10)
	for n, err := 0, error(nil); err == nil; n, err = from.Read(buffer) {
		_ = ws.SetWriteDeadline(time.Now().Add(h.cfg.IdleTimeout))
		var message any = buffer[:n]
		if text {
			message = base64.StdEncoding.EncodeToString(buffer[:n])
		}
		if websocket.Message.Send(ws, message) != nil {
			return
		}
	}
}

// piped is a ResponseWriter that writes into a pipe, or records an error.
type piped struct {
	to     *io.PipeWriter
	header http.Header
	once   sync.Once
	begun  chan struct{}

	mu   sync.Mutex // guards code and text
	code int
	text bytes.Buffer
}

func (p *piped) begin() { p.once.Do(func() { close(p.begun) }) }

// failure returns the error; code is 0 if there is none.
func (p *piped) failure() (code int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code, p.text.String()
}

// Header implements http.ResponseWriter.
func (p *piped) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *piped) WriteHeader(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code == 0 && code >= http.StatusBadRequest {
		p.code = code
	}
}

// Write implements http.ResponseWriter.
func (p *piped) Write(b []byte) (int, error) {
	p.mu.Lock()
	if p.code != 0 {
		defer p.mu.Unlock()
		p.text.Write(b[:min(len(b), maxText-p.text.Len())])
		return len(b), nil
	}
	p.mu.Unlock()
	p.begin()
	return p.to.Write(b)
}

// FlushError is called by http.ResponseController.
func (p *piped) FlushError() error { return nil }
