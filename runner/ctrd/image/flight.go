package image

import (
	"context"
	"sync"
)

// flights lets concurrent calls for one key share one run. Unlike singleflight's, a run does not end with
// the context of the call that happened to start it, but when the last of those who wait for it has gone.
type flights struct {
	mu *sync.Mutex
	m  map[string]*flight
}

type flight struct {
	waiters int
	cancel  context.CancelFunc
	// done is closed when img and err are set.
	done chan struct{}
	img  *Image
	err  error
}

func newFlights() flights { return flights{mu: &sync.Mutex{}, m: map[string]*flight{}} }

func (fs flights) do(ctx context.Context, key string, run func(context.Context) (*Image, error)) (*Image, error) {
	f := fs.join(ctx, key, run)
	defer fs.leave(f)
	select {
	case <-f.done:
		return f.img, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join returns the run of key, and starts it when there is none.
func (fs flights) join(ctx context.Context, key string, run func(context.Context) (*Image, error)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	// One without waiters has been cancelled; whoever comes now wants a new one.
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

// leave ends the run when nobody waits for it any more, and then waits until it has ended.
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
