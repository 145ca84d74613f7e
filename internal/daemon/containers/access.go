package containers

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

// access opens streams, connections and files inside pods.
type access interface {
	stream.Runtime
	node.Files
}

// Access forwards exec, attach, port-forward and file access to the open runtime. It implements stream.Runtime and node.Files.
type Access struct {
	// StreamEnded, which may be nil, is called at the end of each stream.
	StreamEnded func()
	// Network is that of new pods.
	Network PodNetwork

	mu sync.Mutex // guards to
	// to is nil while no runtime is open, or the open one has no access to pods.
	to access
}

// Open forwards to a runtime until the returned function is called.
func (r *Access) Open(rt Runtime) (closed func()) {
	to, _ := rt.(access)
	r.set(to)
	return func() { r.set(nil) }
}

func (r *Access) set(to access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *Access) current() (access, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		return nil, errors.New("the container runtime does not respond; monopod is reconnecting")
	}
	return r.to, nil
}

func (r *Access) ended() {
	if r.StreamEnded != nil {
		r.StreamEnded()
	}
}

// Stream implements stream.Runtime.
func (r *Access) Stream(ctx context.Context, key manifests.Key, id string, command []string, s streams.Streams) (int, error) {
	to, err := r.current()
	if err != nil {
		return 0, err
	}
	defer r.ended()
	return to.Stream(ctx, key, id, command, s)
}

// Attach implements stream.Runtime.
func (r *Access) Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error {
	to, err := r.current()
	if err != nil {
		return err
	}
	defer r.ended()
	return to.Attach(ctx, key, id, s)
}

// Dial implements stream.Runtime.
func (r *Access) Dial(ctx context.Context, key manifests.Key, port int) (net.Conn, error) {
	to, err := r.current()
	if err != nil {
		return nil, err
	}
	return to.Dial(ctx, key, port)
}

// Root implements node.Files.
func (r *Access) Root(ctx context.Context, key manifests.Key, id string) (*os.File, tree.User, error) {
	to, err := r.current()
	if err != nil {
		return nil, tree.User{}, err
	}
	return to.Root(ctx, key, id)
}
