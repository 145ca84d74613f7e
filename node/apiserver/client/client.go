// Package client talks to one Kubernetes API server: it reads kubeconfigs, sends single requests, and bounds their time and answers.
//
// It must not know what the answers are for. It has no goroutines of its own.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
)

const (
	// RequestTimeout bounds a request that is no watch.
	RequestTimeout = 10 * time.Second
	// MaxReason is how much of what a server says gets into errors.
	MaxReason = 512
	// requestQPS and requestBurst bound all requests but watches, as with a kubelet.
	requestQPS   = 50
	requestBurst = 100
)

// The groups of the API that are used.
const (
	CoreAPI           = "/api/v1"
	CoordinationAPI   = "/apis/coordination.k8s.io/v1"
	CertificatesAPI   = "/apis/certificates.k8s.io/v1"
	AuthenticationAPI = "/apis/authentication.k8s.io/v1"
	AuthorizationAPI  = "/apis/authorization.k8s.io/v1"
)

// Client asks one API server.
type Client struct {
	Config  *rest.Config
	rest    *rest.RESTClient
	carrier *http.Transport
	Log     klog.Logger
}

// Open returns a client of a kubeconfig. It does not connect yet. Messages of client-go are logged as details, since failures are returned
// as errors, too.
func Open(path, version string, log *slog.Logger) (*Client, error) {
	config, err := ReadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "monopod/" + version
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS, config.Burst = requestQPS, requestBurst
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c := &Client{Config: config, Log: logr.FromSlogHandler(details{log.Handler()})}
	client, err := c.connect()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.rest, err = rest.RESTClientForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// newScheme knows the groups that are used, and no others: client-go's own knows all of them.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// connect makes the HTTP client. Who we are is client-go's; the connections are ours: its own have windows of many MiB, and
// a goroutine for each file of a certificate that never ends.
func (c *Client) connect() (*http.Client, error) {
	who, err := c.Config.TransportConfig()
	if err != nil {
		return nil, err
	}
	config, err := transport.TLSConfigFor(who)
	if err != nil {
		return nil, err
	}
	dial := (&net.Dialer{Timeout: RequestTimeout}).DialContext
	if who.DialHolder != nil { // an exec plug-in ends connections when it has other credentials
		dial = who.DialHolder.Dial
	}
	proxy := http.ProxyFromEnvironment
	if who.Proxy != nil {
		proxy = who.Proxy
	}
	// One connection for all requests; pings detect a dead peer.
	c.carrier = &http.Transport{
		Proxy: proxy, TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: dial,
		TLSHandshakeTimeout: RequestTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 10, MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: 128 << 10, MaxReceiveBufferPerConnection: 1 << 20},
	}
	carrier, err := transport.HTTPWrappersForConfig(who, c.carrier)
	if err != nil {
		return nil, err
	}
	if c.Config.ExecProvider != nil {
		carrier = NewPatient(carrier)
	}
	return &http.Client{Transport: bounding{carrier}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.carrier.CloseIdleConnections() }

// Request is one question about an object, or about those of a namespace, or all of them.
type Request struct {
	Method string
	// Api is the path of the group and version.
	API                            string
	Namespace, Resource, Name, Sub string
	// Patch is the kind of a patch.
	Patch types.PatchType
	// Body is a runtime.Object, or whatever is JSON.
	Body any
	// Into gets the answer; nil: it is not looked at.
	Into runtime.Object
}

// With is the request with a method and a body.
func (r Request) With(method string, body any) Request {
	r.Method, r.Body = method, body
	return r
}

func (r *Request) String() string {
	return strings.TrimSpace(strings.Join([]string{r.Method, r.Resource, r.Namespace, r.Name, r.Sub}, " "))
}

// To starts a request. Retries are up to the caller.
func (c *Client) To(method, api, namespace, resource string) *rest.Request {
	q := c.rest.Verb(method).AbsPath(api).Resource(resource).MaxRetries(0)
	if namespace != "" {
		q = q.Namespace(namespace)
	}
	return q
}

// Do asks and waits for the answer. An error may be an *apierrors.StatusError.
func (c *Client) Do(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, c.Log), RequestTimeout)
	defer cancel()
	q := c.To(r.Method, r.API, r.Namespace, r.Resource)
	if r.Name != "" {
		q = q.Name(r.Name)
	}
	if r.Sub != "" {
		q = q.SubResource(r.Sub)
	}
	if r.Patch != "" {
		q = q.SetHeader("Content-Type", string(r.Patch))
	}
	if r.Body != nil {
		if _, ok := r.Body.(runtime.Object); !ok {
			b, err := json.Marshal(r.Body)
			if err != nil {
				return fmt.Errorf("%v: %w", &r, err)
			}
			r.Body = b
		}
		q = q.Body(r.Body)
	}
	res := q.Do(ctx)
	if r.Into == nil {
		return Complaint(&res, res.Error())
	}
	if err := Complaint(&res, res.Into(r.Into)); err != nil {
		return err
	}
	return nil
}

// Complaint is an error whose text is bounded, with the status code of the answer.
func Complaint(res *rest.Result, err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	out := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: status.ErrStatus.Reason, Code: status.ErrStatus.Code, Message: Clip(status.ErrStatus.Message)}}
	code := 0
	if res.StatusCode(&code); code != 0 {
		out.ErrStatus.Code = int32(code)
	}
	return out
}

// Clip bounds a text of a server.
func Clip(s string) string {
	if len(s) > MaxReason {
		s = s[:MaxReason] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// Code is the HTTP status of an error, 0 for errors that are no answer.
func Code(err error) int {
	if e, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return int(e.ErrStatus.Code)
	}
	return 0
}

// IsNotFound reports whether the object does not exist.
func IsNotFound(err error) bool { return Code(err) == http.StatusNotFound }

// IsConflict reports whether the object exists already, or is another one by now.
func IsConflict(err error) bool { return Code(err) == http.StatusConflict }

// IsInvalid reports whether the server does not accept the object.
func IsInvalid(err error) bool      { return Code(err) == http.StatusUnprocessableEntity }
func isUnauthorized(err error) bool { return Code(err) == http.StatusUnauthorized }

// isCertificate reports whether server or client did not accept the other one's certificate.
func isCertificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

// Plain is the text of an error without ports, which are others each time.
func Plain(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Op + ": " + e.Err.Error()
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // it has the version of a watch
		return e.Err.Error()
	}
	return err.Error()
}
