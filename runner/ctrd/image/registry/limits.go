package registry

import (
	"context"
	"io"
	"net/http"

	"golang.org/x/time/rate"
)

// Limits bound what pulls do at once. Zero fields are no limits.
type Limits struct {
	// Parallel is how many pulls there are at once.
	Parallel int
	// QPS is how many pulls begin in a second in the long run, Burst how many at once.
	QPS   float64
	Burst int
	// Bandwidth is how many bytes come in a second, for all pulls together.
	Bandwidth int64
}

// Turns are Limits at work.
type Turns struct {
	slots     chan struct{}
	begin     *rate.Limiter
	bandwidth *rate.Limiter
}

// NewTurns returns the turns that limits allow.
func NewTurns(l Limits) Turns {
	var at Turns
	if l.Parallel > 0 {
		at.slots = make(chan struct{}, l.Parallel)
	}
	if l.QPS > 0 {
		at.begin = rate.NewLimiter(rate.Limit(l.QPS), max(1, l.Burst))
	}
	if l.Bandwidth > 0 {
		at.bandwidth = rate.NewLimiter(rate.Limit(l.Bandwidth), int(min(max(l.Bandwidth/4, 4<<10), 256<<10)))
	}
	return at
}

// Turn waits until another pull may begin. The function that it returns says that the pull is over.
func (l Turns) Turn(ctx context.Context) (over func(), err error) {
	over = func() {}
	if l.slots != nil {
		select {
		case l.slots <- struct{}{}:
			over = func() { <-l.slots }
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if l.begin != nil {
		if err := l.begin.Wait(ctx); err != nil {
			over()
			return nil, err
		}
	}
	return over, nil
}

// Slow bounds what comes through a transport.
func (l Turns) Slow(next http.RoundTripper) http.RoundTripper {
	if l.bandwidth == nil {
		return next
	}
	return slowTransport{next, l.bandwidth}
}

type slowTransport struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (t slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil && resp.Body != nil && resp.Body != http.NoBody {
		resp.Body = &slowBody{ReadCloser: resp.Body, request: r, limit: t.limit}
	}
	return resp, err
}

type slowBody struct {
	io.ReadCloser
	request *http.Request
	limit   *rate.Limiter
}

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.limit.Burst())])
	if n > 0 {
		if werr := b.limit.WaitN(b.request.Context(), n); werr != nil && err == nil {
			err = werr
		}
	}
	return n, err
}
