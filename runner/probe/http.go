package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/httpget"
)

// UserAgent is the user agent of HTTP probes; programs recognize probes by its prefix.
const UserAgent = "kube-probe/1.37"

// httpHandler makes GET requests.
type httpHandler struct {
	target Target
	get    *corev1.HTTPGetAction
	port   string
	header http.Header
	mu     sync.Mutex
	// last is the last encoded request. Guarded by mu.
	last *httpget.Request
}

func newHTTPHandler(get *corev1.HTTPGetAction, t Target, port int) handler {
	return &httpHandler{target: t, get: get, port: strconv.Itoa(port), header: headerOf(get.HTTPHeaders)}
}

// headerOf adds the default headers. An empty value in the manifest removes a default.
func headerOf(all []corev1.HTTPHeader) http.Header {
	h := http.Header{"Connection": {"close"}}
	for _, one := range all {
		h.Add(one.Name, one.Value)
	}
	for name, value := range map[string]string{"User-Agent": UserAgent, "Accept": "*/*"} {
		if _, ok := h[name]; !ok {
			h.Set(name, value)
		} else if h.Get(name) == "" {
			delete(h, name)
			if name == "User-Agent" {
				h[name] = nil // otherwise Go's own would be sent
			}
		}
	}
	return h
}

// request returns the request to the current address.
func (h *httpHandler) request() (*httpget.Request, error) {
	host := net.JoinHostPort(hostOf(h.get.Host, h.target), h.port)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != nil && h.last.URL.Host == host {
		return h.last, nil
	}
	u, err := url.Parse(h.get.Path)
	if err != nil { // treat it as a path
		u = &url.URL{Path: h.get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(h.get.Scheme)), host
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	var r *httpget.Request
	if p := h.get.Protocol; p != nil && *p == corev1.HTTPProtocolHTTP2 {
		r = httpget.NewHTTP2(u, h.header)
	} else if r, err = httpget.New(u, h.header); err != nil {
		return nil, err
	}
	h.last = r
	return r, nil
}

func (h *httpHandler) ask(ctx context.Context, timeout time.Duration) Outcome {
	r, err := h.request()
	if err != nil {
		return Outcome{Result: Errored, Output: err.Error(), Fault: faultOf(err)}
	}
	a, err := r.Do(ctx, time.Now().Add(timeout))
	if err != nil {
		return httpError(err, timeout)
	}
	return httpOutcome(a)
}

// httpError returns the outcome of an attempt without an answer. A body that could not be read completely does not count as a result.
func httpError(err error, timeout time.Duration) Outcome {
	if e, ok := errors.AsType[*httpget.BodyError](err); ok {
		return Outcome{Result: Errored, Output: e.Error()}
	}
	if at, ok := errors.AsType[*url.Error](err); ok && late(err) {
		at.Err = fmt.Errorf("no answer within %s: %w", timeout, at.Err)
	}
	return Outcome{Result: Failure, Output: err.Error(), Fault: faultOf(err)}
}

func httpOutcome(a httpget.Answer) Outcome {
	switch {
	case a.Elsewhere:
		return Outcome{Result: Warning, Output: "Probe terminated redirects, Response body: " + a.Body}
	case a.Code >= 200 && a.Code < 400:
		return Outcome{Result: Success, Output: a.Body}
	}
	return Outcome{Result: Failure, Output: fmt.Sprintf("HTTP probe failed with statuscode: %d", a.Code), Fault: statusFault(a.Code)}
}
