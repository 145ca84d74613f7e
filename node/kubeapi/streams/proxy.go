package streams

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/manifests"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/request"
)

// maxHeaders is the size limit of the header of a pod's response.
const maxHeaders = 256 << 10

// Proxy forwards a request to a port of a pod. With secure, it uses TLS without verifying the certificate: the connection does not leave
// the machine.
func (h *Handler) Proxy(w http.ResponseWriter, r *http.Request, req *request.Request, pod *corev1.Pod, port int, secure bool) {
	prefix, rest := split(r, req)
	if redirected(w, r, rest) {
		return
	}
	if h.cfg.Dial == nil {
		codec.Fail(w, r, apierrors.NewServiceUnavailable("ports of pods cannot be reached"))
		return
	}
	unescaped, err := url.PathUnescape(rest)
	if err != nil {
		codec.Fail(w, r, apierrors.NewBadRequest("the path after proxy is not valid: "+err.Error()))
		return
	}
	key := manifests.Key{Namespace: pod.Namespace, Name: pod.Name}
	target := &url.URL{Scheme: "http", Host: net.JoinHostPort(key.Name+"."+key.Namespace, fmt.Sprint(port)), Path: unescaped, RawPath: rest, RawQuery: r.URL.RawQuery}
	if secure {
		target.Scheme = "https"
	}
	proxy := &httputil.ReverseProxy{
		Transport: h.transport(key, port), FlushInterval: -1, ErrorLog: log.New(debugLog{h}, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, p.In.Host
			anonymize(p.Out.Header)
			p.SetXForwarded()
			p.Out.Header.Set("X-Forwarded-Uri", prefix+rest)
		},
		ModifyResponse: func(answer *http.Response) error {
			for _, name := range []string{"Strict-Transport-Security", "Alt-Svc"} { // the client would apply them to monopod, not the pod
				answer.Header.Del(name)
			}
			if to := answer.Header.Get("Location"); to != "" {
				answer.Header.Set("Location", redirect(to, prefix, target.Host, r.Host))
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			h.cfg.Log.Debug("proxy: no answer", "pod", key.String(), "port", port, "err", err)
			codec.Fail(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach port %d of pod %s: %v", port, key, err)))
		},
	}
	// A response may begin before the request ends, for example with gRPC-Web and other streams.
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy.ServeHTTP(w, r)
}

// transport returns a transport to one port of a pod, for one request: connections are not reused.
func (h *Handler) transport(key manifests.Key, port int) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := h.cfg.Dial(ctx, key, port)
			if err != nil {
				return nil, err
			}
			return &idle{Conn: conn, limit: h.cfg.IdleTimeout}, nil
		},
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: h.cfg.HeaderTimeout, ExpectContinueTimeout: time.Second,
		MaxResponseHeaderBytes: maxHeaders, DisableKeepAlives: true, DisableCompression: true,
	}
}

// idle is a connection with an idle timeout.
type idle struct {
	net.Conn
	limit time.Duration
}

// Read implements net.Conn.
func (i *idle) Read(b []byte) (int, error) {
	_ = i.SetDeadline(time.Now().Add(i.limit))
	return i.Conn.Read(b)
}

// Write implements net.Conn.
func (i *idle) Write(b []byte) (int, error) {
	_ = i.SetDeadline(time.Now().Add(i.limit))
	return i.Conn.Write(b)
}

// CloseWrite closes the write direction, if the connection supports it.
func (i *idle) CloseWrite() error {
	if half, ok := i.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return i.Close()
}

// debugLog logs the errors of httputil.ReverseProxy, most of which are about disconnected clients.
type debugLog struct{ h *Handler }

// Write implements io.Writer.
func (d debugLog) Write(b []byte) (int, error) {
	d.h.cfg.Log.Debug("proxy: " + strings.TrimSpace(string(b)))
	return len(b), nil
}

// ProxyNode forwards a request to the kubelet paths of this node.
func (h *Handler) ProxyNode(w http.ResponseWriter, r *http.Request, req *request.Request) {
	_, rest := split(r, req)
	switch unescaped, err := url.PathUnescape(rest); {
	case redirected(w, r, rest):
	case err != nil:
		codec.Fail(w, r, apierrors.NewBadRequest("the path after proxy is not valid: "+err.Error()))
	case h.cfg.Node == nil:
		codec.Fail(w, r, statusOf(http.StatusNotFound, "the kubelet's paths of the node are not served"))
	default:
		to := r.Clone(r.Context())
		to.URL = &url.URL{Path: unescaped, RawPath: rest, RawQuery: r.URL.RawQuery}
		to.RequestURI = to.URL.RequestURI()
		anonymize(to.Header)
		h.cfg.Node.ServeHTTP(w, to)
	}
}

// split splits the escaped path of a request after the subresource proxy.
func split(r *http.Request, req *request.Request) (prefix, rest string) {
	segments := 5 // /api/v1/nodes/NAME/proxy
	if req.Kind.Namespaced {
		segments = 7
	}
	prefix = r.URL.EscapedPath()
	for at := range len(prefix) {
		if prefix[at] != '/' {
			continue
		}
		if segments == 0 {
			return prefix[:at], prefix[at:]
		}
		segments--
	}
	return prefix, ""
}

// redirected redirects requests for the proxy path itself to the path with a trailing slash, so that relative links work.
func redirected(w http.ResponseWriter, r *http.Request, rest string) bool {
	if rest != "" || r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != "" {
		return false
	}
	to := url.URL{Path: r.URL.Path + "/", RawQuery: r.URL.RawQuery}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusMovedPermanently)
	return true
}

// redirect translates the target of a pod's redirect for the client. Targets outside of the pod stay unchanged.
func redirect(to, prefix, pod, client string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" && u.Host != pod && u.Host != client || !strings.HasPrefix(u.Path, "/") {
		return to
	}
	u.Scheme, u.Host = "", ""
	if u.Path != prefix && !strings.HasPrefix(u.Path, prefix+"/") {
		slash := strings.HasSuffix(u.Path, "/")
		u.Path, u.RawPath = path.Join(prefix, u.Path), ""
		if slash {
			u.Path += "/"
		}
	}
	return u.String()
}

// bearer is the prefix of a WebSocket protocol that carries a token.
const bearer = "base64url.bearer.authorization.k8s.io."

// anonymize removes the client's credentials.
func anonymize(h http.Header) {
	for name := range h {
		if name == "Authorization" || name == "Proxy-Authorization" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			h.Del(name)
		}
	}
	const protocols = "Sec-Websocket-Protocol"
	if !strings.Contains(strings.Join(h[protocols], ","), bearer) {
		return
	}
	var kept []string
	for _, line := range h[protocols] {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); !strings.HasPrefix(p, bearer) {
				kept = append(kept, p)
			}
		}
	}
	h.Del(protocols)
	if len(kept) > 0 {
		h.Set(protocols, strings.Join(kept, ", "))
	}
}
