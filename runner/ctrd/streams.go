package ctrd

import (
	"context"
	"net"
	"os"

	"monopod/internal/streams"
	"monopod/internal/tree"
	"monopod/manifests"
	"monopod/runner"
)

// Exec implements runner.Runtime.
func (r *Runtime) Exec(ctx context.Context, key manifests.Key, q runner.ExecRequest) (runner.ExecResult, error) {
	return r.processes.Exec(ctx, key, q)
}

// Stream runs a command in a running container, connected to s, and returns its exit code. When ctx ends, all processes of its
// session are killed. Stream returns when all output has been copied.
func (r *Runtime) Stream(ctx context.Context, key manifests.Key, id string, args []string, s streams.Streams) (code int, err error) {
	return r.processes.Stream(ctx, key, id, args, s)
}

// Attach connects s to the process of a running container, from the current position of its output, until the container, ctx or
// the standard input of s ends.
func (r *Runtime) Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error {
	return r.processes.Attach(ctx, key, id, s)
}

// Dial connects to a TCP port on the loopback interface of a pod, by IPv4, else by IPv6.
func (r *Runtime) Dial(ctx context.Context, key manifests.Key, port int) (net.Conn, error) {
	return r.processes.Dial(ctx, key, port)
}

// Root opens the root directory of a running container, with all its mounts, and returns the user that a command would run as. The
// directory is opened with O_PATH.
func (r *Runtime) Root(ctx context.Context, key manifests.Key, id string) (*os.File, tree.User, error) {
	return r.processes.Root(ctx, key, id)
}
