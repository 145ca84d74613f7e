package watcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"monopod/manifests"
)

const httpSource = "http"

// HTTPConfig configures an HTTPSource.
type HTTPConfig struct {
	// URL is asked by GET.
	URL string
	// Header is sent with each request.
	Header http.Header
	// CheckFrequency is the time between two requests; 0 means 20 s.
	CheckFrequency time.Duration
	// Client makes the requests; nil means one of its own. Its redirect policy is replaced, and a missing timeout filled in.
	Client *http.Client
	// Load turns an answer into pods.
	Load Loader
	// Log gets one line when the state of the source changes; nil means none.
	Log *slog.Logger
}

// Times of an HTTPSource.
const (
	httpTimeout = 10 * time.Second
	// firstRetry is the pause after a first failure; it doubles up to CheckFrequency.
	firstRetry = time.Second
	// jitter is the share of a pause by which it is made shorter or longer, so that a fleet does not ask in step.
	jitter = 0.1
)

// HTTPSource reads the manifests behind one URL. Only a complete answer 200 that is valid as a whole changes what
// it wants; anything else is reported, and the last good content stays.
type HTTPSource struct {
	cfg HTTPConfig
	log *slog.Logger
	// name is the URL without its password: what reports and origins call this input.
	name string

	// The rest belongs to the goroutine of Run.
	set Set
	// content is that of the last valid answer.
	content manifests.Content
	// good and bad are the hashes of the last valid and the last refused answer; badErr says what was wrong with it.
	good, bad [sha256.Size]byte
	badErr    error
	// etag and modified belong to the last valid answer.
	etag, modified string
	// failures counts requests in a row that did not give a valid answer.
	failures int
}

// NewHTTPSource makes an HTTPSource; Run starts it.
func NewHTTPSource(cfg HTTPConfig) *HTTPSource {
	if cfg.CheckFrequency <= 0 {
		cfg.CheckFrequency = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &HTTPSource{cfg: cfg, log: cfg.Log.With("source", httpSource), name: cfg.URL, set: Set{Source: httpSource, Unread: true}}
	if u, err := url.Parse(cfg.URL); err == nil {
		s.name = u.Redacted()
	}
	return s
}

// Name implements Source.
func (s *HTTPSource) Name() string { return httpSource }

// Run implements Source.
func (s *HTTPSource) Run(ctx context.Context, out chan<- Set) error {
	client := s.client()
	defer client.CloseIdleConnections()
	var last Set
	for first := true; ; first = false {
		err := s.ask(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		s.note(time.Now(), err)
		if first || !sameSet(last, s.set) {
			logChanges(s.log, last.Reports, s.set.Reports)
			send(ctx, out, s.set)
			last = s.set
		}
		if !pause(ctx, spread(s.delay())) {
			return nil
		}
	}
}

// client returns the configured client with our rules on it.
func (s *HTTPSource) client() *http.Client {
	c := &http.Client{}
	if s.cfg.Client != nil {
		*c = *s.cfg.Client
	}
	if c.Transport == nil {
		if t, ok := http.DefaultTransport.(*http.Transport); ok {
			c.Transport = t.Clone() // its own connections, which end with Run
		}
	}
	if c.Timeout == 0 {
		c.Timeout = httpTimeout
	}
	c.CheckRedirect = sameHost
	return c
}

var errRedirect = errors.New("redirect refused")

// sameHost refuses to be led away: whoever answers for another host was not configured.
func sameHost(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	switch {
	case req.URL.Host != from.Host:
		return fmt.Errorf("%w: it leads to another host, %s; set the URL to it if that is right", errRedirect, req.URL.Host)
	case req.URL.Scheme != from.Scheme && req.URL.Scheme != "https":
		return fmt.Errorf("%w: it leads from %s to %s", errRedirect, from.Scheme, req.URL.Scheme)
	case len(via) >= 10:
		return fmt.Errorf("%w: more than 10 in a row", errRedirect)
	}
	return nil
}

// refusal is an answer that came but is not acceptable.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &refusal{fmt.Errorf(format, args...)} }

// ask makes one request and takes over a good answer. The error is a *refusal when an answer came.
func (s *HTTPSource) ask(ctx context.Context, client *http.Client) error {
	req, err := s.request(ctx)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && !s.set.Unread:
		return nil // the same as the last valid answer: only its validators are ever sent
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: answered %s", s.name, resp.Status)
	}
	data, err := s.body(resp)
	if err != nil {
		return err
	}
	if err := s.take(data); err != nil {
		return err
	}
	s.etag, s.modified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return nil
}

func (s *HTTPSource) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "monopod")
	for name, values := range s.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	if s.modified != "" {
		req.Header.Set("If-Modified-Since", s.modified)
	}
	return req, nil
}

// body reads a complete answer.
func (s *HTTPSource) body(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxInput+1))
	if err != nil {
		return nil, fmt.Errorf("%s: read answer: %w", s.name, err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case len(data) > MaxInput:
		return nil, refuse("%s: %w", s.name, errTooLarge)
	case kind == "text/html":
		return nil, refuse("%s: answered with a web page (text/html), not with manifests", s.name)
	case !delimited(resp) && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")):
		return nil, refuse("%s: the answer has neither Content-Length nor chunks, so that a cut-off one looks like a whole one; send one of them, or JSON", s.name)
	}
	return data, nil
}

// delimited says that a body that was cut off gave a read error.
func delimited(resp *http.Response) bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed || resp.ProtoMajor > 1
}

// take judges an answer, unless it is the one that was judged last.
func (s *HTTPSource) take(data []byte) error {
	sum := sha256.Sum256(data)
	switch {
	case !s.set.Unread && sum == s.good:
		return nil
	case s.badErr != nil && sum == s.bad:
		return s.badErr
	}
	c, err := safeLoad(s.cfg.Load, s.name, data)
	if err == nil {
		err = immutableEdits(&s.content, c)
	}
	if err != nil {
		s.bad, s.badErr = sum, &refusal{err}
		return s.badErr
	}
	s.good = sum
	s.content = *c
	s.set.Unread, s.set.Pods, s.set.Objects, s.set.Workloads = false, c.Pods, c.Objects, c.Workloads
	return nil
}

// localAddress is our side of a connection in an error text. Its port is another one each time, which would make
// every failed attempt look like news.
var localAddress = regexp.MustCompile(`((?:tcp|udp)[46]? )[0-9A-Fa-f.:\[\]%a-z]+->`)

// note enters the outcome of a request into the set.
func (s *HTTPSource) note(now time.Time, err error) {
	r := Report{Source: httpSource, Input: s.name, State: Unreachable, Errors: lines(err)}
	for i := range r.Errors {
		r.Errors[i] = localAddress.ReplaceAllString(r.Errors[i], "$1")
	}
	s.failures++
	var refused *refusal
	switch {
	case err == nil:
		r.State, s.failures = Accepted, 0
	case errors.As(err, &refused):
		r.State = Refused
	}
	r = r.withContent(&s.content)
	var was Report
	if len(s.set.Reports) > 0 {
		was = s.set.Reports[0]
	}
	s.set.Reports = []Report{keepSince(now, was, r)} // a new slice: the old one was sent
}

// delay is the pause before the next request.
func (s *HTTPSource) delay() time.Duration {
	if s.failures == 0 {
		return s.cfg.CheckFrequency
	}
	return min(s.cfg.CheckFrequency, firstRetry<<min(s.failures-1, 10))
}

// spread makes d up to a jitter shorter or longer.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*jitter*float64(d))
}
