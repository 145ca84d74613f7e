package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/cause"
	"monopod/internal/expand"
	"monopod/runner/httpget"
)

// ErrTimeout is returned by an Exec whose command took too long.
var ErrTimeout = errors.New("command timed out")

// Exec runs a command in the container. Its timeout counts from the start of the process. Any exit code is a result; an error other than
// ErrTimeout means that the command could not be run.
type Exec func(ctx context.Context, command []string, timeout time.Duration, limit int) (code int, output []byte, err error)

// Target is the destination of the probes of a container.
type Target struct {
	Container *corev1.Container
	// Host returns the address of the pod as seen from this machine; empty means this machine itself.
	Host func() string
	Exec Exec
}

// handler is one kind of probe handler, prepared once and used for each attempt.
type handler interface {
	ask(ctx context.Context, timeout time.Duration) Outcome
}

// newHandler returns the handler for one of the manifest. An invalid one (an unknown port name) fails each attempt with an error, as in the
// kubelet.
func newHandler(h corev1.ProbeHandler, t Target) handler {
	switch {
	case h.Exec != nil:
		command, err := expanded(h.Exec.Command, t.Container.Env)
		if err != nil {
			return broken{err}
		}
		return &execHandler{command: command, exec: t.Exec}
	case h.HTTPGet != nil:
		port, err := portOf(h.HTTPGet.Port, t.Container)
		if err != nil {
			return broken{err}
		}
		return newHTTPHandler(h.HTTPGet, t, port)
	case h.TCPSocket != nil:
		port, err := portOf(h.TCPSocket.Port, t.Container)
		if err != nil {
			return broken{err}
		}
		return &tcpHandler{address: addressOf(h.TCPSocket.Host, port, t)}
	case h.GRPC != nil:
		g := &grpcHandler{address: addressOf("", int(h.GRPC.Port), t)}
		if h.GRPC.Service != nil {
			g.service = *h.GRPC.Service
		}
		g.secure = h.GRPC.Mode != nil && *h.GRPC.Mode == corev1.GRPCProbeModeTLS
		return g
	}
	return broken{errors.New("the probe has no handler")}
}

// broken is an invalid handler.
type broken struct{ err error }

func (b broken) ask(context.Context, time.Duration) Outcome {
	return Outcome{Result: Errored, Output: b.err.Error()}
}

// portOf returns a port by number, or by its name in the container.
func portOf(p intstr.IntOrString, c *corev1.Container) (int, error) {
	port := p.IntValue()
	if p.Type == intstr.String {
		for i := range c.Ports {
			if c.Ports[i].Name == p.StrVal {
				port = int(c.Ports[i].ContainerPort)
			}
		}
	}
	if port <= 0 || port > 65535 {
		return 0, fmt.Errorf("couldn't find port: %s", p.String())
	}
	return port, nil
}

// addressOf returns a function that returns the current "host:port".
func addressOf(host string, port int, t Target) func() string {
	number := strconv.Itoa(port)
	return func() string { return net.JoinHostPort(hostOf(host, t), number) }
}

func hostOf(host string, t Target) string {
	if host == "" {
		host = t.Host()
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host
}

// maxErrors is how often in a row a request that could not be made is tried within an attempt.
const maxErrors = 3

// attempt runs a handler, and repeats it if the request could not be made.
func attempt(ctx context.Context, h handler, timeout time.Duration) Outcome {
	var o Outcome
	for range maxErrors {
		o = h.ask(ctx, timeout)
		if o.Result != Errored || ctx.Err() != nil {
			break
		}
	}
	return o
}

// expanded replaces $(NAME) in a command. As in the kubelet, only entries of env with a literal value count: others are in the environment
// of the command itself.
func expanded(command []string, env []corev1.EnvVar) ([]string, error) {
	values := map[string]string{}
	for i := range env {
		if env[i].ValueFrom == nil {
			values[env[i].Name] = env[i].Value
		}
	}
	var room expand.Words
	out := make([]string, len(command))
	for i, word := range command {
		var err error
		if out[i], err = room.Expand(word, values); err != nil {
			return nil, fmt.Errorf("exec.command[%d]: %w", i, err)
		}
	}
	return out, nil
}

// execHandler runs a command in the container.
type execHandler struct {
	command []string
	exec    Exec
}

func (h *execHandler) ask(ctx context.Context, timeout time.Duration) Outcome {
	code, output, err := h.exec(ctx, h.command, timeout, outputLimit)
	switch {
	case errors.Is(err, ErrTimeout):
		return Outcome{Result: Failure, Output: fmt.Sprintf("command %q timed out", h.command), Fault: cause.TimedOut}
	case err != nil:
		return Outcome{Result: Errored, Output: err.Error(), Fault: faultOf(err)}
	case code != 0:
		return Outcome{Result: Failure, Output: string(output), Fault: outputFault(code, string(output))}
	}
	return Outcome{Result: Success, Output: string(output)}
}

// tcpHandler opens a connection and closes it.
type tcpHandler struct {
	address func() string
}

func (h *tcpHandler) ask(ctx context.Context, timeout time.Duration) Outcome {
	c, err := httpget.Dial(ctx, h.address(), time.Now().Add(timeout))
	if err != nil {
		return Outcome{Result: Failure, Output: err.Error(), Fault: faultOf(err)}
	}
	_ = c.Close()
	return Outcome{Result: Success}
}
