package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// Bounds of what is accepted from a server.
const (
	// MaxAnswer is the largest answer, and the largest event of a watch; etcd keeps no object larger than 1.5 MiB.
	MaxAnswer = 2 << 20
	// maxComplaint is the maximum size read of an answer that is not 2xx.
	maxComplaint = 64 << 10
	// burstOfEvents is how many events of a watch are taken in a second.
	burstOfEvents = 500
	// MaxWaiting is how many requests may wait for an exec plug-in.
	MaxWaiting = 16
)

// ErrTooLarge is the error of an answer with more than MaxAnswer bytes.
var ErrTooLarge = fmt.Errorf("the answer is larger than %d bytes", MaxAnswer)

// bounding is a RoundTripper whose answers are bounded, whatever reads them: client-go reads to the end.
type bounding struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounding) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch {
	case res.StatusCode/100 != 2:
		res.Body = body{io.LimitReader(res.Body, maxComplaint), res.Body}
	case req.URL.Query().Get("watch") == "true":
		res.Body = body{&Frames{Ctx: req.Context(), R: res.Body, Began: time.Now()}, res.Body}
	default:
		res.Body = body{&bounded{r: res.Body, left: MaxAnswer}, res.Body}
	}
	return res, nil
}

type body struct {
	io.Reader
	io.Closer
}

// bounded is a reader that fails when there is too much.
type bounded struct {
	r    io.Reader
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := b.r.Read(make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		return 0, ErrTooLarge
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Frames reads JSON values, one after the other, and fails when one of them is too large: a decoder holds all of it. A server
// that never ends to tell shall not have the processor.
type Frames struct {
	Ctx context.Context //nolint:containedctx // that of the request whose answer this is
	R   io.Reader
	// depth is how many braces and brackets are open, size how much has come since none was.
	depth, size   int
	text, escaped bool
	Count         int
	Began         time.Time
}

// Read implements io.Reader.
func (f *Frames) Read(p []byte) (int, error) {
	if f.size > MaxAnswer {
		return 0, ErrTooLarge
	}
	if f.Count >= burstOfEvents {
		Pause(f.Ctx, time.Until(f.Began.Add(time.Second)), nil)
		f.Count, f.Began = 0, time.Now()
	}
	n, err := f.R.Read(p[:min(len(p), 32<<10)])
	for _, c := range p[:n] {
		f.next(c)
	}
	return n, err
}

func (f *Frames) next(c byte) {
	f.size++
	switch {
	case f.escaped:
		f.escaped = false
	case f.text:
		f.escaped, f.text = c == '\\', c != '"'
	case c == '"':
		f.text = true
	case c == '{', c == '[':
		f.depth++
	case c == '}', c == ']':
		if f.depth--; f.depth <= 0 {
			f.depth, f.size = 0, 0
			f.Count++
		}
	}
}

// patient is a RoundTripper that comes back when its context ends, also when the one that it asks does not: exec plug-ins
// take as long as they take.
type patient struct {
	next  http.RoundTripper
	slots chan struct{}
}

// NewPatient returns a transport that bounds how many requests wait for an exec plug-in of the kubeconfig.
func NewPatient(next http.RoundTripper) *patient {
	return &patient{next: next, slots: make(chan struct{}, MaxWaiting)}
}

// ErrWaiting is the error of requests while such a plug-in does not end.
var ErrWaiting = errors.New("the exec plug-in of the kubeconfig does not exit")

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	type outcome struct {
		res *http.Response
		err error
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return nil, ErrWaiting
	}
	ctx, done := req.Context(), make(chan outcome)
	go func() {
		defer func() { <-p.slots }()
		res, err := p.next.RoundTrip(req)
		select {
		case done <- outcome{res, err}:
		case <-ctx.Done():
			if err == nil {
				_ = res.Body.Close() // nobody reads it
			}
		}
	}()
	select {
	case o := <-done:
		return o.res, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrWaiting, context.Cause(ctx))
	}
}

// details writes what client-go has to say at the level of details, whatever it thinks of it. What it calls details itself
// is left out: bodies are among them, with tokens and Secrets.
type details struct{ slog.Handler }

// Enabled implements slog.Handler.
func (d details) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (d details) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d details) WithAttrs(attrs []slog.Attr) slog.Handler {
	return details{d.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (d details) WithGroup(name string) slog.Handler { return details{d.Handler.WithGroup(name)} }
