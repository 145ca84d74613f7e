package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"

	"monopod/internal/streams"
	"monopod/internal/tree"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/stream"
)

// insides is what reaches into pods.
type insides interface {
	stream.Runtime
	node.Files
}

// inside hands on to the runtime that is open what reaches into pods. It is one itself.
type inside struct {
	mu sync.Mutex // guards to
	// to is nil while no runtime is open, or one that cannot.
	to insides
	// over, which may be nil, hears of the end of each stream: it has taken memory.
	over func()
}

// open takes a runtime until the function is called that it returns.
func (r *inside) open(rt Runtime) (closed func()) {
	to, _ := rt.(insides)
	r.set(to)
	return func() { r.set(nil) }
}

func (r *inside) set(to insides) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *inside) now() (insides, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		return nil, errors.New("containers cannot be reached now; monopod is trying to see them")
	}
	return r.to, nil
}

func (r *inside) ended() {
	if r.over != nil {
		r.over()
	}
}

// Stream implements stream.Runtime.
func (r *inside) Stream(ctx context.Context, key manifests.Key, id string, command []string, s streams.Streams) (int, error) {
	to, err := r.now()
	if err != nil {
		return 0, err
	}
	defer r.ended()
	return to.Stream(ctx, key, id, command, s)
}

// Attach implements stream.Runtime.
func (r *inside) Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error {
	to, err := r.now()
	if err != nil {
		return err
	}
	defer r.ended()
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

// Root implements node.Files.
func (r *inside) Root(ctx context.Context, key manifests.Key, id string) (*os.File, tree.User, error) {
	to, err := r.now()
	if err != nil {
		return nil, tree.User{}, err
	}
	return to.Root(ctx, key, id)
}
