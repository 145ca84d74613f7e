package apiserver

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
	// requestTimeout bounds a request that is no watch.
	requestTimeout = 10 * time.Second
	// maxReason is how much of what a server says gets into errors.
	maxReason = 512
	// requestQPS and requestBurst bound all requests but watches, as with a kubelet.
	requestQPS   = 50
	requestBurst = 100
)

// The groups of the API that are used.
const (
	coreAPI           = "/api/v1"
	coordinationAPI   = "/apis/coordination.k8s.io/v1"
	certificatesAPI   = "/apis/certificates.k8s.io/v1"
	authenticationAPI = "/apis/authentication.k8s.io/v1"
	authorizationAPI  = "/apis/authorization.k8s.io/v1"
)

// Client asks one API server.
type Client struct {
	config  *rest.Config
	rest    *rest.RESTClient
	carrier *http.Transport
	log     klog.Logger
}

// Open returns a client of a kubeconfig. It connects to nobody yet. What client-go says comes to log, as details: what counts
// comes as errors, too.
func Open(path, version string, log *slog.Logger) (*Client, error) {
	config, err := readKubeconfig(path)
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
	c := &Client{config: config, log: logr.FromSlogHandler(details{log.Handler()})}
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
	who, err := c.config.TransportConfig()
	if err != nil {
		return nil, err
	}
	config, err := transport.TLSConfigFor(who)
	if err != nil {
		return nil, err
	}
	dial := (&net.Dialer{Timeout: requestTimeout}).DialContext
	if who.DialHolder != nil { // an exec plug-in ends connections when it has other credentials
		dial = who.DialHolder.Dial
	}
	proxy := http.ProxyFromEnvironment
	if who.Proxy != nil {
		proxy = who.Proxy
	}
	// One connection for all, which pings notice when nobody is at its other end.
	c.carrier = &http.Transport{
		Proxy: proxy, TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: dial,
		TLSHandshakeTimeout: requestTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 10, MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: 128 << 10, MaxReceiveBufferPerConnection: 1 << 20},
	}
	carrier, err := transport.HTTPWrappersForConfig(who, c.carrier)
	if err != nil {
		return nil, err
	}
	if c.config.ExecProvider != nil {
		carrier = newPatient(carrier)
	}
	return &http.Client{Transport: bounding{carrier}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// Close ends the connections that nobody uses.
func (c *Client) Close() { c.carrier.CloseIdleConnections() }

// request is one question about an object, or about those of a namespace, or all of them.
type request struct {
	method string
	// api is the path of the group and version.
	api                            string
	namespace, resource, name, sub string
	// patch is the kind of a patch.
	patch types.PatchType
	// body is a runtime.Object, or whatever is JSON.
	body any
	// into gets the answer; nil: it is not looked at.
	into runtime.Object
}

// with is the request with a method and a body.
func (r request) with(method string, body any) request {
	r.method, r.body = method, body
	return r
}

func (r *request) String() string {
	return strings.TrimSpace(strings.Join([]string{r.method, r.resource, r.namespace, r.name, r.sub}, " "))
}

// to is the beginning of a request. What fails is tried again by who asks.
func (c *Client) to(method, api, namespace, resource string) *rest.Request {
	q := c.rest.Verb(method).AbsPath(api).Resource(resource).MaxRetries(0)
	if namespace != "" {
		q = q.Namespace(namespace)
	}
	return q
}

// do asks and waits for the answer. An error may be an *apierrors.StatusError.
func (c *Client) do(ctx context.Context, r request) error {
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, c.log), requestTimeout)
	defer cancel()
	q := c.to(r.method, r.api, r.namespace, r.resource)
	if r.name != "" {
		q = q.Name(r.name)
	}
	if r.sub != "" {
		q = q.SubResource(r.sub)
	}
	if r.patch != "" {
		q = q.SetHeader("Content-Type", string(r.patch))
	}
	if r.body != nil {
		if _, ok := r.body.(runtime.Object); !ok {
			b, err := json.Marshal(r.body)
			if err != nil {
				return fmt.Errorf("%v: %w", &r, err)
			}
			r.body = b
		}
		q = q.Body(r.body)
	}
	res := q.Do(ctx)
	if r.into == nil {
		return complaint(&res, res.Error())
	}
	if err := complaint(&res, res.Into(r.into)); err != nil {
		return err
	}
	return nil
}

// complaint is an error with no more of what the server says than there is room for, and with the code that it came with,
// whatever the text says.
func complaint(res *rest.Result, err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	out := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: status.ErrStatus.Reason, Code: status.ErrStatus.Code, Message: clip(status.ErrStatus.Message)}}
	code := 0
	if res.StatusCode(&code); code != 0 {
		out.ErrStatus.Code = int32(code)
	}
	return out
}

// clip bounds a text of a server.
func clip(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

func code(err error) int {
	if e, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return int(e.ErrStatus.Code)
	}
	return 0
}

func isNotFound(err error) bool     { return code(err) == http.StatusNotFound }
func isConflict(err error) bool     { return code(err) == http.StatusConflict }
func isInvalid(err error) bool      { return code(err) == http.StatusUnprocessableEntity }
func isUnauthorized(err error) bool { return code(err) == http.StatusUnauthorized }

// isCertificate says that server or client were not believed.
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

// plain is the text of an error without ports, which are others each time.
func plain(err error) string {
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
