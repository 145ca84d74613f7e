// Package localclient is the client of the API on the unix socket. It bounds the time and the size of each answer.
//
// It must not decide anything about pods. It has no goroutines.
package localclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/node/localapi"
	podstream "monopod/node/stream"
)

// Client asks the API of a daemon: one method for each of its paths.
type Client struct{ transport }

// New returns a client for the socket. It does no I/O.
func New(socket string) *Client { return &Client{newTransport(socket)} }

// Streams returns the client for what reaches into pods.
func (c *Client) Streams() *podstream.Client {
	return podstream.NewClient(c.Limits.Request, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", c.socket)
		if opErr, ok := errors.AsType[*net.OpError](err); ok {
			return nil, &ConnectError{Socket: c.socket, Err: opErr.Err}
		}
		return conn, err
	})
}

// ConnectError means that no daemon accepts connections.
type ConnectError struct {
	Socket string
	Err    error
}

// Error adds what to do about it.
func (e *ConnectError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return e.Cause() + "; only root may use monopod, try sudo"
	case errors.Is(e.Err, fs.ErrNotExist):
		return e.Cause() + "; is monopod running? Start it with `monopod run`, or set its socket with --socket or MONOPOD_SOCKET"
	default:
		return e.Cause() + "; is monopod running? Start it with `monopod run`"
	}
}

// Cause says the same without advice.
func (e *ConnectError) Cause() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return e.Socket + ": permission denied"
	case errors.Is(e.Err, fs.ErrNotExist):
		return e.Socket + " does not exist"
	default:
		return fmt.Sprintf("no daemon answers on %s (%v)", e.Socket, e.Err)
	}
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// Live returns why the daemon should be restarted; nil: it is alive.
func (c *Client) Live(ctx context.Context) error {
	body, err := c.get(ctx, "/livez", wholeAnswer)
	if err != nil {
		return err
	}
	return body.Close()
}

// Pods lists pods; an empty namespace means all.
func (c *Client) Pods(ctx context.Context, namespace string) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	err := c.getJSON(ctx, localapi.PodReports(namespace), list)
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
	for i := range list.Items {
		asPod(&list.Items[i])
	}
	return list, err
}

// Pod returns one pod.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.getJSON(ctx, localapi.PodReport(namespace, name, ""), pod)
	asPod(pod)
	return pod, err
}

// Inputs returns the state of all inputs.
func (c *Client) Inputs(ctx context.Context) ([]model.Input, error) {
	var inputs []model.Input
	return inputs, c.getJSON(ctx, localapi.Self("sources"), &inputs)
}

// ErrEnded is the end of a watch because the daemon has ended.
var ErrEnded = errors.New("monopod has exited")

// PodEvent is one event of a watch.
type PodEvent struct {
	// Type is ADDED, MODIFIED or DELETED, or Bookmark where that is asked for.
	Type   string     `json:"type"`
	Object corev1.Pod `json:"object"`
}

// Watch calls each with the pods that there are and then with each change, until ctx ends or each returns
// an error. Empty namespace and name select all.
func (c *Client) Watch(ctx context.Context, namespace, name string, each func(PodEvent) error) error {
	q := url.Values{}
	if name != "" {
		q.Set("fieldSelector", "metadata.name="+name)
	}
	return watchPods(ctx, c, namespace, q, each)
}

func watchPods(ctx context.Context, c *Client, namespace string, q url.Values, each func(PodEvent) error) error {
	q.Set("watch", "true")
	return follow(ctx, c, localapi.PodReports(namespace)+"?"+q.Encode(), func(e PodEvent) error {
		asPod(&e.Object)
		return each(e)
	})
}

// asPod converts a report to its pod, which has the same fields.
func asPod(p *corev1.Pod) { p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} }

// follow calls each with each object of a stream, until ctx ends or each returns an error.
func follow[T any](ctx context.Context, c *Client, path string, each func(T) error) error {
	body, err := c.get(ctx, path, firstByte)
	if err != nil {
		return err
	}
	defer body.Close()
	for all := c.objects(body); ; {
		var e T
		switch err := all.next(&e); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return ErrEnded
		case err != nil:
			return fmt.Errorf("read events: %w", err)
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// Log opens the log of a container; the parameters are those of v1.PodLogOptions.
func (c *Client) Log(ctx context.Context, namespace, name string, params url.Values) (io.ReadCloser, error) {
	limit := eachPart
	if params.Get("follow") == "true" {
		limit = forever // the answer begins with the first line, whenever that comes
	}
	return c.get(ctx, localapi.Pod(namespace, name, "log")+"?"+params.Encode(), limit)
}
