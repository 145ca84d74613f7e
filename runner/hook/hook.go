// Package hook runs the postStart and preStop hooks of containers.
//
// Resolve turns what a manifest says into what is to be done; it is pure. Run does it and blocks until it is
// done. The package decides neither when a hook runs nor what becomes of a container whose hook fails, and it starts
// no goroutines of its own.
package hook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/runner/httpget"
)

// Hook is what is to be done: one of the three.
type Hook struct {
	// Exec is a command to run in the container.
	Exec []string
	// URL is where to send a GET, with Header.
	URL    string
	Header http.Header
	// HTTP2 says to send it by HTTP/2 without TLS.
	HTTP2 bool
	// Sleep is the duration of a sleep hook.
	Sleep time.Duration
}

// String describes the hook for logs.
func (h Hook) String() string {
	switch {
	case len(h.Exec) > 0:
		return "exec " + strings.Join(h.Exec, " ")
	case h.URL != "":
		return "GET " + h.URL
	}
	return "sleep " + h.Sleep.String()
}

// Resolve returns what a handler of a container means in a pod with the given address. Named ports are those of the
// container.
func Resolve(h *corev1.LifecycleHandler, c *corev1.Container, ip string) (Hook, error) {
	switch {
	case h.Exec != nil:
		return Hook{Exec: h.Exec.Command}, nil
	case h.Sleep != nil:
		return Hook{Sleep: time.Duration(h.Sleep.Seconds) * time.Second}, nil
	case h.HTTPGet != nil:
		return resolveHTTP(h.HTTPGet, c, ip)
	}
	return Hook{}, errors.New("the hook has no supported action")
}

func resolveHTTP(get *corev1.HTTPGetAction, c *corev1.Container, ip string) (Hook, error) {
	port, err := portOf(get.Port, c)
	if err != nil {
		return Hook{}, err
	}
	host := get.Host
	if host == "" {
		host = ip
	}
	if host == "" {
		return Hook{}, errors.New("the pod has no address yet")
	}
	u, err := url.Parse(get.Path)
	if err != nil { // as kubelet: then it is the path as it stands
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(get.Scheme)), net.JoinHostPort(host, strconv.Itoa(port))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	header := http.Header{"User-Agent": {"kube-lifecycle/1.37"}, "Accept": {"*/*"}, "Connection": {"close"}}
	seen := map[string]bool{}
	for _, h := range get.HTTPHeaders {
		key := http.CanonicalHeaderKey(h.Name)
		if !seen[key] {
			header.Del(key)
		}
		seen[key] = true
		header.Add(key, h.Value)
	}
	http2 := get.Protocol != nil && *get.Protocol == corev1.HTTPProtocolHTTP2
	return Hook{URL: u.String(), Header: header, HTTP2: http2}, nil
}

func portOf(port intstr.IntOrString, c *corev1.Container) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("container %s has no port named %q", c.Name, port.StrVal)
}

// Exec runs a command in the container and returns its exit code and the beginning of its output.
type Exec func(ctx context.Context, command []string) (code int, output string, err error)

// Run does what the hook says. Any answer to a request is a success, as it is for kubelet, also one with status 500;
// of commands it is only exit code 0.
func Run(ctx context.Context, h Hook, exec Exec) error {
	switch {
	case len(h.Exec) > 0:
		code, output, err := exec(ctx, h.Exec)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d, output %q", code, output)
		}
		return err
	case h.URL != "":
		return get(ctx, h)
	}
	timer := time.NewTimer(h.Sleep)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// get sends the request. It retries with plain HTTP if the server does not speak HTTPS, as the kubelet does: without credentials.
func get(ctx context.Context, h Hook) error {
	err := send(ctx, h)
	if rest, secure := strings.CutPrefix(h.URL, "https:"); secure && errors.Is(err, http.ErrSchemeMismatch) {
		h.URL, h.Header = "http:"+rest, h.Header.Clone()
		h.Header.Del("Authorization")
		return send(ctx, h)
	}
	return err
}

// send sends the request once. How the body of the answer ends is of no interest.
func send(ctx context.Context, h Hook) error {
	r, err := h.request()
	if err != nil {
		return err
	}
	_, err = r.Do(ctx, time.Time{})
	if _, unread := errors.AsType[*httpget.BodyError](err); unread {
		return nil
	}
	return err
}

func (h Hook) request() (*httpget.Request, error) {
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil, err
	}
	if h.HTTP2 {
		return httpget.NewHTTP2(u, h.Header), nil
	}
	return httpget.New(u, h.Header)
}
