package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"monopod/internal/cause"
	"monopod/internal/regular"
	"monopod/watcher"
)

const httpSource = "http"

// HTTPConfig configures a Remote that asks a URL.
type HTTPConfig struct {
	// Name is that of the source; empty means "http".
	Name string
	// URL is asked by GET.
	URL string
	// Header is sent with each request, HeaderFiles too.
	Header      http.Header
	HeaderFiles []HeaderFile
	// CheckFrequency is the time between two requests; 0 means 20 s.
	CheckFrequency time.Duration
	// Timeout is the longest time of a request with its answer, 0 means 10 s; Stall is the longest time without a byte
	// of the answer, 0 means 10 s.
	Timeout, Stall time.Duration
	// MaxSize is the largest answer in bytes; 0 means MaxInput, which is the most.
	MaxSize int
	// Detached asks for the signature of each answer too, at the URL with ".minisig" behind its path.
	Detached bool
	// Trust configures the trusted certificates and the client's own credentials.
	Trust Trust
	// Client makes the requests; nil means one of its own. Its redirect policy is replaced, and a missing timeout
	// filled in; its transport takes the place of Trust and of the proxy of the environment.
	Client *http.Client
	// The rest is as in RemoteConfig.
	Load   watcher.Loader
	Atomic bool
	Verify Verify
	Copy   *Copy
	Log    *slog.Logger
	Now    func() time.Time
}

// HeaderFile is a header whose value is read from a file at each request.
type HeaderFile struct {
	// Name is that of the header.
	Name string
	// Before stands before the content of the file, as "Bearer ".
	Before string
	// File holds the value; white space around it is not part of it.
	File string
}

const httpTimeout = 10 * time.Second

// NewHTTPSource makes a Remote that asks a URL; Run starts it.
func NewHTTPSource(cfg HTTPConfig) *Remote {
	if cfg.Name == "" {
		cfg.Name = httpSource
	}
	input := RedactURL(cfg.URL)
	return NewRemote(RemoteConfig{
		Name: cfg.Name, Input: input, Place: cfg.URL, Fetcher: newHTTPFetcher(cfg, input), Period: cfg.CheckFrequency,
		Load: cfg.Load, Atomic: cfg.Atomic, Verify: cfg.Verify, Copy: cfg.Copy, Log: cfg.Log, Now: cfg.Now,
	})
}

// RedactURL hides the password of a URL, or a user name that stands alone: that is a token; and the values of its query,
// which may sign it. Of what cannot be read as a URL nothing is shown.
func RedactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil && strings.Contains(u.Opaque+u.Path, "@") && u.Host == "" {
		return "(not a URL)"
	}
	if _, hasPassword := u.User.Password(); u.User != nil && !hasPassword {
		u.User = url.User("xxxxx")
	}
	if u.User == nil && u.RawQuery == "" {
		return s
	}
	u.RawQuery = redactQuery(u.RawQuery)
	return u.Redacted()
}

// redactQuery leaves the names in a query.
func redactQuery(query string) string {
	var parts []string
	for part := range strings.SplitSeq(query, "&") {
		if name, _, named := strings.Cut(part, "="); named {
			parts = append(parts, name+"=xxxxx")
		} else if part != "" {
			parts = append(parts, "xxxxx")
		}
	}
	return strings.Join(parts, "&")
}

// redacted is RedactURL for the URL in an error.
func redacted(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		e.URL = RedactURL(e.URL)
	}
	return err
}

// httpFetcher asks a URL. It belongs to the goroutine of its Remote.
type httpFetcher struct {
	cfg HTTPConfig
	// name is the URL without its password.
	name   string
	client *http.Client
	trust  *trustFiles
}

func newHTTPFetcher(cfg HTTPConfig, name string) *httpFetcher {
	if cfg.Stall <= 0 {
		cfg.Stall = httpTimeout
	}
	if cfg.MaxSize <= 0 || cfg.MaxSize > watcher.MaxInput {
		cfg.MaxSize = watcher.MaxInput
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &httpFetcher{cfg: cfg, name: name, client: &http.Client{Timeout: cfg.Timeout}}
	if cfg.Client != nil {
		*f.client = *cfg.Client
	}
	if f.client.Timeout == 0 {
		f.client.Timeout = httpTimeout
	}
	if f.client.Transport == nil {
		f.trust = &trustFiles{files: cfg.Trust, now: cfg.Now}
	}
	f.client.CheckRedirect = sameHost
	return f
}

// Close implements Fetcher.
func (f *httpFetcher) Close() {
	if f.client.Transport != nil {
		f.client.CloseIdleConnections()
	}
}

var errRedirect = errors.New("redirect refused")

// sameHost refuses redirects to other hosts, which were not configured.
func sameHost(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	switch {
	case req.URL.Host != from.Host:
		return fmt.Errorf("%w: it leads to another host, %s; set the URL to it if that is correct", errRedirect, req.URL.Host)
	case req.URL.Scheme != from.Scheme && req.URL.Scheme != "https":
		return fmt.Errorf("%w: it leads from %s to %s", errRedirect, from.Scheme, req.URL.Scheme)
	case len(via) >= 10:
		return fmt.Errorf("%w: more than 10 in a row", errRedirect)
	}
	return nil
}

// Fetch implements Fetcher.
func (f *httpFetcher) Fetch(ctx context.Context, seen Validators) (*Answer, error) {
	if f.trust != nil {
		if err := f.trust.refresh(f.client); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	req, err := f.request(ctx, f.cfg.URL)
	if err != nil {
		return nil, redacted(err)
	}
	if seen.ETag != "" {
		req.Header.Set("If-None-Match", seen.ETag)
	}
	if seen.LastModified != "" {
		req.Header.Set("If-Modified-Since", seen.LastModified)
	}
	answer, err := f.get(req)
	if err == nil && f.cfg.Detached {
		answer.Signature, err = f.signature(ctx)
	}
	if err != nil {
		return nil, f.explain(redacted(err))
	}
	return answer, nil
}

const (
	signatureSuffix = ".minisig"
	// maxSignature is more than a signature with its comments has.
	maxSignature = 64 << 10
)

// signature asks for the signature of the answer that just came.
func (f *httpFetcher) signature(ctx context.Context) ([]byte, error) {
	at, err := url.Parse(f.cfg.URL)
	if err != nil {
		return nil, err
	}
	if at.RawPath != "" {
		at.RawPath += signatureSuffix
	}
	at.Path += signatureSuffix
	of := *f
	of.name, of.cfg.MaxSize = RedactURL(at.String()), maxSignature
	req, err := of.request(ctx, at.String())
	if err != nil {
		return nil, err
	}
	answer, err := of.get(req)
	if status, ok := errors.AsType[*statusError](err); ok && (status.code == http.StatusNotFound || status.code == http.StatusGone) {
		return nil, refuse("there is no signature: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// statusError is an answer of another status than 200.
type statusError struct {
	name, status string
	code         int
}

func (s *statusError) Error() string { return s.name + ": answered " + s.status }

var errStalled = errors.New("timeout: the answer makes no progress")

// get makes a request and reads the whole answer.
func (f *httpFetcher) get(req *http.Request) (*Answer, error) {
	ctx, stop := context.WithCancelCause(req.Context())
	defer stop(nil)
	stall := time.AfterFunc(f.cfg.Stall, func() { stop(errStalled) })
	defer stall.Stop()
	answer, err := f.exchange(req.WithContext(ctx), func() { stall.Reset(f.cfg.Stall) })
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return nil, fmt.Errorf("%s: %w for %s", f.name, errStalled, f.cfg.Stall)
	}
	return answer, err
}

// exchange calls moved whenever something of the answer came.
func (f *httpFetcher) exchange(req *http.Request, moved func()) (*Answer, error) {
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	moved()
	conditional := req.Header.Get("If-None-Match")+req.Header.Get("If-Modified-Since") != ""
	switch {
	case resp.StatusCode == http.StatusNotModified && conditional:
		return nil, ErrNotModified
	case resp.StatusCode != http.StatusOK:
		return nil, f.notOK(resp)
	}
	data, err := f.body(resp, moved)
	if err != nil {
		return nil, err
	}
	return &Answer{Body: data, Validators: Validators{ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}}, nil
}

// notOK is the error of an answer of another status, with the time to wait that it asks for.
func (f *httpFetcher) notOK(resp *http.Response) error {
	err := &statusError{name: f.name, status: resp.Status, code: resp.StatusCode}
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return err
	}
	after := resp.Header.Get("Retry-After")
	if seconds, numErr := strconv.ParseUint(after, 10, 31); numErr == nil {
		return &Later{Err: err, After: time.Duration(seconds) * time.Second}
	}
	if at, dateErr := http.ParseTime(after); dateErr == nil {
		return &Later{Err: err, After: at.Sub(f.cfg.Now())}
	}
	return err
}

// request makes a request with the configured headers.
func (f *httpFetcher) request(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "monopod")
	for name, values := range f.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	for _, h := range f.cfg.HeaderFiles {
		value, err := h.read()
		if err != nil {
			return nil, fmt.Errorf("%s: header %s: %w", f.name, h.Name, err)
		}
		req.Header.Set(h.Name, value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return req, nil
}

// maxHeaderFile is more than servers take in a header.
const maxHeaderFile = 64 << 10

// read returns the value. Its content is in no error.
func (h HeaderFile) read() (string, error) {
	data, err := regular.ReadFile(h.File, maxHeaderFile)
	if err != nil {
		return "", cause.Wrap(err, badFile(h.File))
	}
	value := strings.TrimSpace(string(data))
	switch {
	case value == "":
		return "", cause.Wrap(fmt.Errorf("%s is empty", h.File), badFile(h.File))
	case strings.ContainsAny(value, "\r\n\x00"):
		return "", cause.Wrap(fmt.Errorf("%s has more than one line", h.File), badFile(h.File))
	}
	return h.Before + value, nil
}

// body reads a complete answer.
func (f *httpFetcher) body(resp *http.Response, moved func()) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(&moving{resp.Body, moved}, int64(f.cfg.MaxSize)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: read answer: %w", f.name, err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case len(data) > f.cfg.MaxSize:
		return nil, refuse("%s: larger than %s", f.name, sizeText(f.cfg.MaxSize))
	case kind == "text/html":
		return nil, refuse("%s: answered with a web page (text/html), not with manifests", f.name)
	case !delimited(resp) && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")):
		return nil, refuse("%s: the answer has neither Content-Length nor chunks, so that truncation cannot be detected; send one of them, or JSON", f.name)
	}
	return data, nil
}

func sizeText(n int) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// moving calls moved whenever a read got something.
type moving struct {
	io.Reader
	moved func()
}

func (m *moving) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if n > 0 {
		m.moved()
	}
	return n, err
}

// delimited reports whether a truncated body would have caused a read error.
func delimited(resp *http.Response) bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed || resp.ProtoMajor > 1
}
