package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of what is accepted from a server.
const (
	// maxAnswer is the largest object; etcd keeps none larger than 1.5 MiB.
	maxAnswer = 2 << 20
	// maxComplaint is how much is read of an answer that is not 2xx.
	maxComplaint = 64 << 10
	// requestTimeout bounds a request that is no watch.
	requestTimeout = 10 * time.Second
	// maxReason is how much of what a server says gets into errors.
	maxReason = 512
)

// Content types of patches.
const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
)

// Client asks one API server.
type Client struct {
	base    string
	agent   string
	http    *http.Client
	carrier *http.Transport
	tokens  *tokens
	target  *target
}

// Open returns a client of a kubeconfig. It connects to nobody yet.
func Open(path, version string) (*Client, error) {
	t, err := readTarget(path)
	if err != nil {
		return nil, err
	}
	config, err := t.tls()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	proxy := http.ProxyFromEnvironment
	if t.cluster.ProxyURL != "" {
		u, err := url.Parse(t.cluster.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("%s: proxy-url: %w", path, err)
		}
		proxy = http.ProxyURL(u)
	}
	// One connection for all, which pings notice when nobody is at its other end.
	carrier := &http.Transport{
		Proxy: proxy, TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: (&net.Dialer{Timeout: requestTimeout}).DialContext,
		TLSHandshakeTimeout: requestTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 10, MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: 128 << 10, MaxReceiveBufferPerConnection: 1 << 20},
	}
	return &Client{
		base: strings.TrimSuffix(t.cluster.Server, "/"), agent: "monopod/" + version, carrier: carrier, target: t,
		http:   &http.Client{Transport: carrier, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		tokens: &tokens{fixed: t.user.Token, file: t.user.TokenFile},
	}, nil
}

// Close ends the connections that nobody uses.
func (c *Client) Close() { c.carrier.CloseIdleConnections() }

// request is one question. The body is encoded as JSON.
type request struct {
	method, path string
	query        url.Values
	// contentType is that of the body; empty: JSON.
	contentType string
	body        any
	// into gets the answer; nil: it is not looked at.
	into any
}

// do asks and waits for the answer. An error may be an *apierrors.StatusError.
func (c *Client) do(ctx context.Context, r request) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	if r.into == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(body, maxAnswer))
	} else {
		err = decodeAll(body, r.into)
	}
	if err != nil {
		return fmt.Errorf("answer to %s %s: %w", r.method, r.path, err)
	}
	return nil
}

// decodeAll decodes a body that is not too large.
func decodeAll(body io.Reader, into any) error {
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(b) > maxAnswer {
		return fmt.Errorf("larger than %d bytes", maxAnswer)
	}
	return json.Unmarshal(b, into)
}

// open asks and returns the body of a good answer, without a bound in size or time.
func (c *Client) open(ctx context.Context, r request) (io.ReadCloser, error) {
	var in io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		in = bytes.NewReader(b)
	}
	to := c.base + r.path
	if len(r.query) > 0 {
		to += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, to, in)
	if err != nil {
		return nil, err
	}
	token, err := c.tokens.get()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.agent)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res.Body, nil
	}
	defer res.Body.Close()
	return nil, complaint(r, res)
}

// complaint is what an answer that is not 2xx says.
func complaint(r request, res *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxComplaint)) // what there is of it
	status := metav1.Status{}
	if json.Unmarshal(b, &status) != nil || status.Kind != "Status" || status.Message == "" {
		status = metav1.Status{Message: fmt.Sprintf("%s %s: %s", r.method, r.path, res.Status)}
	}
	status.Code = int32(res.StatusCode) // what counts, whatever the body says
	status.Message = clip(status.Message)
	return &apierrors.StatusError{ErrStatus: status}
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
