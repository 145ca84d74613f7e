package registry

import (
	"context"
	"io"
	"net/http"

	"golang.org/x/time/rate"
)

// Limits bound concurrent pulls. Zero fields mean no limit.
type Limits struct {
	// Parallel is the number of concurrent pulls.
	Parallel int
	// QPS is the average rate at which pulls start, per second; Burst is how many may start at once.
	QPS   float64
	Burst int
	// Bandwidth is in bytes per second, for all pulls together.
	Bandwidth int64
}

// limiter enforces Limits.
type limiter struct {
	pulls     chan struct{}
	starts    *rate.Limiter
	bandwidth *rate.Limiter
}

func newLimiter(l Limits) limiter {
	var at limiter
	if l.Parallel > 0 {
		at.pulls = make(chan struct{}, l.Parallel)
	}
	if l.QPS > 0 {
		at.starts = rate.NewLimiter(rate.Limit(l.QPS), max(1, l.Burst))
	}
	if l.Bandwidth > 0 {
		at.bandwidth = rate.NewLimiter(rate.Limit(l.Bandwidth), int(min(max(l.Bandwidth/4, 4<<10), 256<<10)))
	}
	return at
}

// begin waits until another pull may start. The caller must call done when the pull ends.
func (l limiter) begin(ctx context.Context) (done func(), err error) {
	done = func() {}
	if l.pulls != nil {
		select {
		case l.pulls <- struct{}{}:
			done = func() { <-l.pulls }
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if l.starts != nil {
		if err := l.starts.Wait(ctx); err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}

// throttle limits the bandwidth of the responses of a transport.
func (l limiter) throttle(next http.RoundTripper) http.RoundTripper {
	if l.bandwidth == nil {
		return next
	}
	return throttledTransport{next, l.bandwidth}
}

type throttledTransport struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (t throttledTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil && resp.Body != nil && resp.Body != http.NoBody {
		resp.Body = &throttledBody{ReadCloser: resp.Body, request: r, limit: t.limit}
	}
	return resp, err
}

type throttledBody struct {
	io.ReadCloser
	request *http.Request
	limit   *rate.Limiter
}

// Read implements io.Reader.
func (b *throttledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.limit.Burst())])
	if n > 0 {
		if werr := b.limit.WaitN(b.request.Context(), n); werr != nil && err == nil {
			err = werr
		}
	}
	return n, err
}
