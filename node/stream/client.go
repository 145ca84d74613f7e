package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monopod/internal/streams"
	"monopod/manifests"
)

// Client reaches into pods through a Handler.
type Client struct {
	dial func(context.Context) (net.Conn, error)
	// timeout is how long the daemon may take to answer; 0: no limit.
	timeout time.Duration
}

// NewClient returns a Client whose connections dial makes: one for each call. Within timeout (0: no limit) each must be answered; what
// comes then may take as long as it likes.
func NewClient(timeout time.Duration, dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{dial: dial, timeout: timeout}
}

// maxAnswer is the longest header of an answer, with the text of a refusal.
const maxAnswer = 1 << 20

// ErrLost is the end of a connection before its time.
var ErrLost = errors.New("the connection to monopod is lost")

// Exec runs a command and returns its exit code.
func (c *Client) Exec(ctx context.Context, key manifests.Key, container string, command []string, s streams.Streams) (int, error) {
	q := announce(container, s)
	q["command"] = command
	return c.remote(ctx, path(key, "exec"), q, s)
}

// Attach connects to the process of a container.
func (c *Client) Attach(ctx context.Context, key manifests.Key, container string, s streams.Streams) error {
	_, err := c.remote(ctx, path(key, "attach"), announce(container, s), s)
	return err
}

// path returns the path of a subresource of a pod in the Kubernetes API.
func path(key manifests.Key, sub string) string {
	return "/api/v1/namespaces/" + url.PathEscape(key.Namespace) + "/pods/" + url.PathEscape(key.Name) + "/" + sub
}

// announce returns the query with the container and the streams.
func announce(container string, s streams.Streams) url.Values {
	q := url.Values{"container": {container}}
	for name, on := range map[string]bool{"stdin": s.Stdin != nil, "stdout": s.Stdout != nil, "stderr": s.Stderr != nil && !s.TTY, "tty": s.TTY} {
		if on {
			q.Set(name, "true")
		}
	}
	return q
}

// upgrade opens a connection with SPDY on it. It is closed with ctx; release ends that.
func (c *Client) upgrade(ctx context.Context, path string, q url.Values, protocols ...string) (conn httpstream.Connection, release func(), err error) {
	raw, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer func() {
		if err != nil {
			stop()
			_ = raw.Close()
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://monopod"+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	r.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	r.Header[httpstream.HeaderProtocolVersion] = protocols
	if c.timeout > 0 {
		_ = raw.SetDeadline(time.Now().Add(c.timeout)) // a connection that has none works without
	}
	if err := r.Write(raw); err != nil {
		return nil, nil, c.lost(err)
	}
	limited := &io.LimitedReader{R: raw, N: maxAnswer}
	from := bufio.NewReader(limited)
	res, err := http.ReadResponse(from, r)
	if err != nil {
		return nil, nil, c.lost(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
		_ = res.Body.Close()
		return nil, nil, refusal(b)
	}
	_ = raw.SetDeadline(time.Time{})
	limited.N = math.MaxInt64
	conn, err = spdy.NewClientConnection(&bounded{Conn: raw, from: from})
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { stop(); _ = conn.Close() }, nil
}

// lost is the error of a connection that ended before it was answered.
func (c *Client) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("monopod did not answer within %s; see its log, or wait longer with --request-timeout", c.timeout)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// header makes a header of names and values.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// refusal is an answer's text, which may be that of a Status.
func refusal(b []byte) error {
	s := metav1.Status{}
	if json.Unmarshal(b, &s) == nil && s.Message != "" {
		return errors.New(s.Message)
	}
	return errors.New(strings.TrimSpace(string(b)))
}

// remote connects s to a process until that ends.
func (c *Client) remote(ctx context.Context, path string, q url.Values, s streams.Streams) (int, error) {
	conn, release, err := c.upgrade(ctx, path, q, protocolV4)
	if err != nil {
		return 0, err
	}
	defer release()
	all := map[string]httpstream.Stream{}
	for _, name := range []string{corev1.StreamTypeError, corev1.StreamTypeStdin, corev1.StreamTypeStdout, corev1.StreamTypeStderr, corev1.StreamTypeResize} {
		on := map[string]bool{
			corev1.StreamTypeError: true, corev1.StreamTypeStdin: s.Stdin != nil, corev1.StreamTypeStdout: s.Stdout != nil,
			corev1.StreamTypeStderr: s.Stderr != nil && !s.TTY, corev1.StreamTypeResize: s.TTY,
		}[name]
		if !on {
			continue
		}
		if all[name], err = conn.CreateStream(header(corev1.StreamType, name)); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	if in := all[corev1.StreamTypeStdin]; in != nil {
		go func() {
			_, _ = copyBuffer(in, s.Stdin)
			_ = in.Close()
		}()
	}
	if to := all[corev1.StreamTypeResize]; to != nil && s.Resize != nil {
		go sendSizes(ctx, to, s.Resize, conn.CloseChan())
	}
	var copies sync.WaitGroup
	for name, to := range map[string]io.Writer{corev1.StreamTypeStdout: s.Stdout, corev1.StreamTypeStderr: s.Stderr} {
		if from := all[name]; from != nil {
			copies.Go(func() {
				if _, err := copyBuffer(to, from); err != nil {
					release() // nothing reads it any more
				}
			})
		}
	}
	b, err := io.ReadAll(io.LimitReader(all[corev1.StreamTypeError], 1<<20))
	copies.Wait()
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil || len(b) == 0:
		return 0, ErrLost
	}
	return ended(b)
}

// ended reads how a command ended.
func ended(b []byte) (int, error) {
	s := metav1.Status{}
	if err := json.Unmarshal(b, &s); err != nil {
		return 0, fmt.Errorf("exit status: %w", err)
	}
	if s.Status == metav1.StatusSuccess {
		return 0, nil
	}
	if s.Reason == reasonExitCode && s.Details != nil {
		for _, c := range s.Details.Causes {
			if code, err := strconv.Atoi(c.Message); c.Type == causeExitCode && err == nil {
				return code, nil
			}
		}
	}
	return 0, errors.New(s.Message)
}

// sendSizes tells the sizes of the terminal until the connection is closed.
func sendSizes(ctx context.Context, to io.Writer, sizes <-chan streams.Size, closed <-chan bool) {
	encoder := json.NewEncoder(to)
	for {
		select {
		case <-ctx.Done():
			return
		case <-closed:
			return
		case size, open := <-sizes:
			if !open || encoder.Encode(size) != nil {
				return
			}
		}
	}
}

// Forward connects local to a port of a pod until both sides have ended, and closes it.
func (c *Client) Forward(ctx context.Context, key manifests.Key, port int, local net.Conn) error {
	return c.forward(ctx, path(key, "portforward"), port, local)
}

func (c *Client) forward(ctx context.Context, path string, port int, local net.Conn) error {
	defer local.Close()
	conn, release, err := c.upgrade(ctx, path, nil, protocolForward)
	if err != nil {
		return err
	}
	defer release()
	of := func(t string) http.Header {
		return header(corev1.StreamType, t, corev1.PortHeader, strconv.Itoa(port), corev1.PortForwardRequestIDHeader, "0")
	}
	errs, err := conn.CreateStream(of(corev1.StreamTypeError))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	_ = errs.Close() // nothing goes that way
	data, err := conn.CreateStream(of(corev1.StreamTypeData))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	failed := make(chan error, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(errs, 64<<10))
		if len(b) > 0 {
			_ = local.Close()
			failed <- errors.New(string(b))
			return
		}
		failed <- nil
	}()
	pump(ctx, data, local)
	timer := time.AfterFunc(lastWord, release) // why it has ended comes on the other stream
	defer timer.Stop()
	return <-failed
}
