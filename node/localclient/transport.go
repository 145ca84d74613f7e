package localclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/localapi"
)

// transport sends requests to the socket, and bounds the time and the size of each answer. It knows no path of the API.
type transport struct {
	// OnWarning, which may be nil, is called for each answer that is not complete.
	OnWarning func(string)
	// Limits are DefaultLimits unless they are set before the first request.
	Limits Limits

	socket string
	http   *http.Client
}

// maxHeader is the longest header of an answer.
const maxHeader = 1 << 20

func newTransport(socket string) transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return transport{socket: socket, Limits: DefaultLimits(), http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader}}}
}

func (t *transport) getJSON(ctx context.Context, path string, into any) error {
	body, err := t.get(ctx, path, wholeAnswer)
	if err != nil {
		return err
	}
	defer body.Close()
	return t.decode(path, body, into)
}

// send asks for a change and reads the answer.
func (t *transport) send(ctx context.Context, method, path string, request, answer any) error {
	body, err := t.ask(ctx, method, path, request, wholeAnswer)
	if err != nil {
		return err
	}
	defer body.Close()
	return t.decode(path, body, answer)
}

// ask sends a request with a body and returns that of a good answer.
func (t *transport) ask(ctx context.Context, method, path string, request any, u until) (io.ReadCloser, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://monopod"+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return t.do(req, u)
}

// get returns the body of a good answer. An error is a *ConnectError or the daemon's Status.
func (t *transport) get(ctx context.Context, path string, u until) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://monopod"+path, nil)
	if err != nil {
		return nil, err
	}
	return t.do(req, u)
}

// do is get for any request.
func (t *transport) do(req *http.Request, u until) (io.ReadCloser, error) {
	res, err := t.answer(req, u)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// answer is do with all that is around the body.
func (t *transport) answer(req *http.Request, u until) (*http.Response, error) {
	path := req.URL.Path
	res, err := t.roundTrip(req, u)
	if err != nil {
		if opErr, ok := errors.AsType[*net.OpError](err); ok && opErr.Op == "dial" {
			return nil, &ConnectError{Socket: t.socket, Err: opErr.Err}
		}
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		t.warn(res.Header.Get("Warning"))
		return res, nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	status := metav1.Status{}
	if json.Unmarshal(b, &status) == nil && status.Kind == "Status" {
		if isOlder(path, &status) {
			return nil, errOlder(path)
		}
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, &AnswerError{Path: path, Err: fmt.Errorf("%s: %s", res.Status, shortened(strings.TrimSpace(string(b))))}
}

func errOlder(path string) error {
	return fmt.Errorf("the running monopod is older than this command and does not know %s; use the same release of both", path)
}

// isOlder reports whether an older daemon does not know the path: errors of this release name the object on all of its own paths.
func isOlder(path string, s *metav1.Status) bool {
	return s.Code == http.StatusNotFound && strings.HasPrefix(path, localapi.Base+"/") && (s.Details == nil || s.Details.Group == "" && s.Details.Kind == "")
}

// warn passes on the text of a Warning header: code, agent, quoted text.
func (t *transport) warn(header string) {
	parts := strings.SplitN(header, " ", 3)
	if len(parts) < 3 || t.OnWarning == nil {
		return
	}
	if text, err := strconv.Unquote(parts[2]); err == nil {
		t.OnWarning(text)
	}
}

// maxForeign bounds what is shown of an error that is no Status, and therefore not from monopod.
const maxForeign = 1 << 10

func shortened(text string) string {
	if len(text) > maxForeign {
		return text[:maxForeign] + "..."
	}
	return text
}
