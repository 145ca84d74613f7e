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

// Stream runs a command in a running container, connected to s, and returns its exit code. The end of ctx kills the
// process with all in its session. It returns when all output has been taken.
func (r *Runtime) Stream(ctx context.Context, key manifests.Key, id string, args []string, s streams.Streams) (code int, err error) {
	return r.processes.Stream(ctx, key, id, args, s)
}

// Attach connects s to the process of a running container, whose output is there from now on, until the container ends,
// ctx ends, or the standard input of s does.
func (r *Runtime) Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error {
	return r.processes.Attach(ctx, key, id, s)
}

// Dial connects to a TCP port on the loopback device of a pod: by IPv4, else by IPv6.
func (r *Runtime) Dial(ctx context.Context, key manifests.Key, port int) (net.Conn, error) {
	return r.processes.Dial(ctx, key, port)
}

// Root opens the root directory of a container that runs, as its own process sees it, with all that is mounted there, and
// tells who a command would be there. The directory is only a place to look from.
func (r *Runtime) Root(ctx context.Context, key manifests.Key, id string) (*os.File, tree.User, error) {
	return r.processes.Root(ctx, key, id)
}
