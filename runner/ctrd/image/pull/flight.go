package pull

import (
	"context"
	"sync"

	"monopod/runner/ctrd/image"
)

// flights lets concurrent calls for one key share one run. Unlike in singleflight, the run is not cancelled with the context of the call that
// started it, but when the last call that waits for it has left.
type flights struct {
	mu *sync.Mutex
	m  map[string]*flight
}

type flight struct {
	waiters int
	cancel  context.CancelFunc
	// done is closed when img and err are set.
	done chan struct{}
	img  *image.Image
	err  error
}

func newFlights() flights { return flights{mu: &sync.Mutex{}, m: map[string]*flight{}} }

func (fs flights) do(ctx context.Context, key string, run func(context.Context) (*image.Image, error)) (*image.Image, error) {
	f := fs.join(ctx, key, run)
	defer fs.leave(f)
	select {
	case <-f.done:
		return f.img, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join returns the run of key, and starts it if necessary.
func (fs flights) join(ctx context.Context, key string, run func(context.Context) (*image.Image, error)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	// A run without waiters was cancelled, so it is not joined.
	if f := fs.m[key]; f != nil && f.waiters > 0 {
		f.waiters++
		return f
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{waiters: 1, cancel: cancel, done: make(chan struct{})}
	fs.m[key] = f
	go func() {
		f.img, f.err = run(runCtx)
		fs.mu.Lock()
		if fs.m[key] == f {
			delete(fs.m, key)
		}
		fs.mu.Unlock()
		close(f.done)
	}()
	return f
}

// leave cancels the run after its last waiter, and then waits for its end.
func (fs flights) leave(f *flight) {
	fs.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	fs.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// Shared returns the number of runs, and of the calls that wait for them.
func (fs flights) Shared() (runs, calls int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.m {
		calls += f.waiters
	}
	return len(fs.m), calls
}
