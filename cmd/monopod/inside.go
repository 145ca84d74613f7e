package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/node/stream"
)

// inside hands on to the runtime that is open what reaches into pods. It is stream.Runtime.
type inside struct {
	mu sync.Mutex // guards to
	// to is nil while no runtime is open, or one that cannot.
	to stream.Runtime
}

// open takes a runtime until the function is called that it returns.
func (r *inside) open(rt Runtime) (closed func()) {
	to, _ := rt.(stream.Runtime)
	r.set(to)
	return func() { r.set(nil) }
}

func (r *inside) set(to stream.Runtime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *inside) now() (stream.Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		return nil, errors.New("containers cannot be reached now; monopod is trying to see them")
	}
	return r.to, nil
}

// Stream implements stream.Runtime.
func (r *inside) Stream(ctx context.Context, key manifests.Key, id string, command []string, s streams.Streams) (int, error) {
	to, err := r.now()
	if err != nil {
		return 0, err
	}
	return to.Stream(ctx, key, id, command, s)
}

// Attach implements stream.Runtime.
func (r *inside) Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error {
	to, err := r.now()
	if err != nil {
		return err
	}
	return to.Attach(ctx, key, id, s)
}

// Dial implements stream.Runtime.
func (r *inside) Dial(ctx context.Context, key manifests.Key, port int) (net.Conn, error) {
	to, err := r.now()
	if err != nil {
		return nil, err
	}
	return to.Dial(ctx, key, port)
}
