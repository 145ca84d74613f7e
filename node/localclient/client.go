// Package localclient is the client of the API on the unix socket. It bounds the time and the size of each answer.
//
// It must not decide anything about pods. It has no goroutines.
package localclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	podstream "monopod/node/stream"
)

// Client asks the API of a daemon.
type Client struct {
	// OnWarning, which may be nil, hears of answers that are not complete.
	OnWarning func(string)
	// Limits are DefaultLimits unless they are set before the first request.
	Limits Limits

	socket string
	http   *http.Client
}

// maxHeader is the longest header of an answer.
const maxHeader = 1 << 20

// New returns a client for the socket. It does no I/O.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, Limits: DefaultLimits(), http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader}}}
}

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

// ConnectError says that no daemon could be asked.
type ConnectError struct {
	Socket string
	Err    error
}

// Error says what to do about it.
func (e *ConnectError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return e.Cause() + "; only root may ask monopod, try sudo"
	case errors.Is(e.Err, fs.ErrNotExist):
		return e.Cause() + "; is monopod running? Start it with `monopod run`, or name its socket with --socket or MONOPOD_SOCKET"
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
		return fmt.Sprintf("nobody answers on %s (%v)", e.Socket, e.Err)
	}
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// Live says what is wrong with the daemon, if that is such that another one would do better; nil: nothing.
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
	return list, c.getJSON(ctx, "/v1/pods?"+url.Values{"namespace": {namespace}}.Encode(), list)
}

// Pod returns one pod.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, c.getJSON(ctx, podPath(namespace, name), pod)
}

// Inputs returns the state of all inputs.
func (c *Client) Inputs(ctx context.Context) ([]model.Input, error) {
	var inputs []model.Input
	return inputs, c.getJSON(ctx, "/v1/sources", &inputs)
}

// ErrEnded is the end of a watch because the daemon has ended.
var ErrEnded = errors.New("monopod has ended")

// PodEvent is one event of a watch.
type PodEvent struct {
	// Type is ADDED, MODIFIED or DELETED, or Bookmark where that is asked for.
	Type   string     `json:"type"`
	Object corev1.Pod `json:"object"`
}

// Watch calls each with the pods that there are and then with each change, until ctx ends or each returns
// an error. Empty namespace and name select all.
func (c *Client) Watch(ctx context.Context, namespace, name string, each func(PodEvent) error) error {
	q := url.Values{"watch": {"true"}, "namespace": {namespace}, "name": {name}}
	return follow(ctx, c, "/v1/pods?"+q.Encode(), each)
}

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

// Log opens the log of a container; see Server for the parameters.
func (c *Client) Log(ctx context.Context, namespace, name string, params url.Values) (io.ReadCloser, error) {
	limit := eachPart
	if params.Get("follow") == "true" {
		limit = forever // the answer begins with the first line, whenever that comes
	}
	return c.get(ctx, podPath(namespace, name)+"/log?"+params.Encode(), limit)
}

func podPath(namespace, name string) string {
	return "/v1/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

func (c *Client) getJSON(ctx context.Context, path string, into any) error {
	body, err := c.get(ctx, path, wholeAnswer)
	if err != nil {
		return err
	}
	defer body.Close()
	return c.decode(path, body, into)
}

// warn passes on the text of a Warning header: code, agent, quoted text.
func (c *Client) warn(header string) {
	parts := strings.SplitN(header, " ", 3)
	if len(parts) < 3 || c.OnWarning == nil {
		return
	}
	if text, err := strconv.Unquote(parts[2]); err == nil {
		c.OnWarning(text)
	}
}

// get returns the body of a good answer. An error is a *ConnectError or the daemon's Status.
func (c *Client) get(ctx context.Context, path string, u until) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://monopod"+path, nil)
	if err != nil {
		return nil, err
	}
	return c.do(req, u)
}

// do is get for any request.
func (c *Client) do(req *http.Request, u until) (io.ReadCloser, error) {
	res, err := c.answer(req, u)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// answer is do with all that is around the body.
func (c *Client) answer(req *http.Request, u until) (*http.Response, error) {
	path := req.URL.Path
	res, err := c.roundTrip(req, u)
	if err != nil {
		if opErr, ok := errors.AsType[*net.OpError](err); ok && opErr.Op == "dial" {
			return nil, &ConnectError{Socket: c.socket, Err: opErr.Err}
		}
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		c.warn(res.Header.Get("Warning"))
		return res, nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	status := metav1.Status{}
	if json.Unmarshal(b, &status) == nil && status.Kind == "Status" {
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, &AnswerError{Path: path, Err: fmt.Errorf("%s: %s", res.Status, shortened(strings.TrimSpace(string(b))))}
}

// maxForeign is how much is shown of an error that is no Status, and therefore not monopod's.
const maxForeign = 1 << 10

func shortened(text string) string {
	if len(text) > maxForeign {
		return text[:maxForeign] + "..."
	}
	return text
}
