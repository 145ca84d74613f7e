package localclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Limits keep a client from waiting, or taking memory, without end when the daemon hangs or is not a monopod.
type Limits struct {
	// Request is how long a request may take with its answer; of a stream, until it begins. 0: no limit.
	Request time.Duration
	// Answer and Object are the longest answer, and the longest object of a stream, in bytes.
	Answer, Object int64
}

// DefaultLimits are far more than what runs on one machine needs.
func DefaultLimits() Limits {
	return Limits{Request: 30 * time.Second, Answer: 64 << 20, Object: 16 << 20}
}

// TimeoutError means that the daemon did not answer in time.
type TimeoutError struct {
	Socket string
	After  time.Duration
}

// Error adds what to do about it.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("monopod did not answer on %s within %s; see its log, or wait longer with --request-timeout", e.Socket, e.After)
}

// AnswerError means that an answer cannot be parsed: the server is no monopod of this release, or is broken.
type AnswerError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *AnswerError) Error() string { return fmt.Sprintf("answer to %s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *AnswerError) Unwrap() error { return e.Err }

// until is how long the limit of a request counts.
type until int

const (
	// wholeAnswer: until the last byte of the answer.
	wholeAnswer until = iota
	// firstByte: until the answer begins; a stream may then be silent.
	firstByte
	// eachPart: the answer may take long, but each part of it must come in time.
	eachPart
	// forever: there is no limit.
	forever
)

// guard ends a request that takes too long.
type guard struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
	late   error
	until  until
}

// newGuard starts the time of a request. Call done when it has ended.
func (t *transport) newGuard(ctx context.Context, u until) *guard {
	g := &guard{limit: t.Limits.Request, until: u, late: &TimeoutError{Socket: t.socket, After: t.Limits.Request}}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	if g.limit > 0 && u != forever {
		g.timer = time.AfterFunc(g.limit, func() { g.cancel(g.late) })
	}
	return g
}

// err is why the request has ended.
func (g *guard) err(err error) error {
	if err != nil && errors.Is(context.Cause(g.ctx), g.late) {
		return g.late
	}
	return err
}

func (g *guard) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

func (g *guard) restart() {
	if g.timer != nil {
		g.timer.Reset(g.limit)
	}
}

func (g *guard) done() {
	g.stop()
	g.cancel(nil)
}

// begun is called when the answer begins.
func (g *guard) begun() {
	if g.until != wholeAnswer {
		g.stop()
	}
}

// guardedBody is the body of a request or of an answer whose time counts.
type guardedBody struct {
	io.ReadCloser
	guard *guard
	// sent: this is what is sent; the time begins again whenever the daemon has taken some of it.
	sent bool
}

// Read implements io.Reader. With eachPart the time counts while it waits for the daemon only.
func (b *guardedBody) Read(p []byte) (int, error) {
	switch {
	case b.sent:
		b.guard.stop() // what is sent comes from elsewhere
		defer b.guard.restart()
		return b.ReadCloser.Read(p)
	case b.guard.until == eachPart:
		b.guard.restart()
		defer b.guard.stop()
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		return n, err
	}
	return n, b.guard.err(err)
}

// Close implements io.Closer.
func (b *guardedBody) Close() error {
	if b.sent {
		return b.ReadCloser.Close()
	}
	defer b.guard.done()
	return b.ReadCloser.Close()
}

// roundTrip sends a request and returns the answer, whose body ends with its time.
func (t *transport) roundTrip(req *http.Request, u until) (*http.Response, error) {
	g := t.newGuard(req.Context(), u)
	req = req.WithContext(g.ctx)
	if u == eachPart && req.Body != nil {
		req.Body = &guardedBody{ReadCloser: req.Body, guard: g, sent: true}
	}
	res, err := t.http.Do(req)
	if err != nil {
		err = g.err(err)
		g.done()
		return nil, err
	}
	g.begun()
	res.Body = &guardedBody{ReadCloser: res.Body, guard: g}
	return res, nil
}

// errTooLong ends an answer that is longer than its limit.
var errTooLong = errors.New("it is too long")

// budgetReader reads at most left bytes.
type budgetReader struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (r *budgetReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLong
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

// decode reads an answer that is one JSON object.
func (t *transport) decode(path string, body io.Reader, into any) error {
	err := json.NewDecoder(&budgetReader{from: body, left: t.Limits.Answer}).Decode(into)
	if _, late := errors.AsType[*TimeoutError](err); late || err == nil {
		return err
	}
	return &AnswerError{Path: path, Err: err}
}

// objects reads a stream of JSON objects.
type objects struct {
	dec   *json.Decoder
	from  *budgetReader
	limit int64
}

func (t *transport) objects(body io.Reader) *objects {
	from := &budgetReader{from: body}
	return &objects{dec: json.NewDecoder(from), from: from, limit: t.Limits.Object}
}

// next reads one.
func (o *objects) next(into any) error {
	o.from.left = o.limit
	return o.dec.Decode(into)
}
