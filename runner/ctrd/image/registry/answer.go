package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/jsonlimit"
)

// Limits on what a registry sends besides blobs, in bytes after decompression. containerd decodes tokens and referrers from whatever comes.
const (
	// maxAnswer limits manifests, indexes and referrers; registries accept no manifests of more than 4 MiB.
	maxAnswer = 8 << 20
	// maxToken limits the answer of a token server. A token becomes a header, and servers accept no headers of this size.
	maxToken = 1 << 20
	// maxComplaint limits what is read of an answer that is not 2xx. Its status counts even if there is more.
	maxComplaint = 64 << 10
	// maxHeaders limits the headers of an answer.
	maxHeaders = 64 << 10
	// maxValues limits the values of JSON: one of two bytes can take more than a hundred in memory.
	maxValues = 50_000
)

// ErrTooLarge reports an answer of a registry or its token server that is larger than any good one.
var ErrTooLarge = errors.New("larger than any that a registry should send")

// answers is a transport that bounds each answer, except the content of blobs: that is bounded by the size in its descriptor.
type answers struct {
	next http.RoundTripper
	// registry is set for requests to a registry; others are to a token server, whose address the registry chooses.
	registry bool
}

// bound gives each host a client of its own with bounded answers. containerd shares one client between a host and its authorizer, which
// keeps the shared one: what comes from a token server must never count as a blob, whatever its URL is.
func bound(hosts []docker.RegistryHost) []docker.RegistryHost {
	for i := range hosts {
		shared := hosts[i].Client
		tokens, ok := shared.Transport.(answers)
		if !ok {
			tokens = answers{next: shared.Transport}
			shared.Transport = tokens
		}
		own := *shared
		own.Transport = answers{next: tokens.next, registry: true}
		hosts[i].Client = &own
	}
	return hosts
}

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	blob := a.registry && isBlob(r)
	resp, err := a.next.RoundTrip(withEncoding(r, blob))
	if err != nil {
		return nil, err
	}
	if err := a.check(resp, blob); err != nil {
		return nil, errors.Join(fmt.Errorf("the answer of %s to %s %s is %w", r.URL.Host, r.Method, r.URL.Path, err), resp.Body.Close())
	}
	switch {
	case resp.StatusCode/100 != 2:
		resp.Body = readCloser{io.LimitReader(resp.Body, maxComplaint), resp.Body}
	case !blob:
		resp.Body = readCloser{jsonlimit.NewReader(&limited{from: resp.Body, left: a.limit()}, maxValues), resp.Body}
	}
	return resp, nil
}

func (a answers) limit() int64 {
	if a.registry {
		return maxAnswer
	}
	return maxToken
}

// check refuses an answer by its headers.
func (a answers) check(resp *http.Response, blob bool) error {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); {
	case resp.StatusCode/100 != 2:
		return nil
	case encoding != "" && encoding != "identity" && (!blob || encoding != "gzip"):
		// Zstandard data choose how much memory they need, and containerd makes a decompressor for each encoding in a list.
		return fmt.Errorf("compressed in a way that was not requested: %.40q", encoding)
	case !blob && resp.Request.Method != http.MethodHead && resp.ContentLength > a.limit():
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, resp.ContentLength)
	}
	return nil
}

// withEncoding returns the request with the accepted encodings. The transport decompresses what no one asked for explicitly, so that limits
// count what is decoded; containerd decompresses blobs itself.
func withEncoding(r *http.Request, blob bool) *http.Request {
	if r.Header.Get("Accept-Encoding") == "" {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding")
	if blob {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	return r
}

// isBlob reports whether a request, before all redirects, is for the content of a blob, on behalf of Fetcher.Fetch.
func isBlob(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	dir, id := path.Split(r.URL.Path)
	_, err := digest.Parse(id)
	return r.Context().Value(fetching{}) != nil && path.Base(dir) == "blobs" && err == nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// limited is a reader that fails with ErrTooLarge if there are more bytes than left.
type limited struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.from.Read(p[:min(int64(len(p)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("the answer is %w", ErrTooLarge)
	}
	return n, err
}

// resolver is a resolver whose Fetcher is a fetcher.
type resolver struct{ remotes.Resolver }

// Fetcher implements remotes.Resolver.
func (r resolver) Fetcher(ctx context.Context, ref string) (remotes.Fetcher, error) {
	f, err := r.Resolver.Fetcher(ctx, ref)
	if err != nil {
		return nil, err
	}
	return fetcher{f}, nil
}

// fetching is the key of a context of Fetcher.Fetch.
type fetching struct{}

// fetcher fetches from the registry only: containerd would request the URLs in a descriptor first, without any of our limits.
type fetcher struct{ remotes.Fetcher }

// Fetch implements remotes.Fetcher.
func (f fetcher) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	d.URLs = nil
	return f.Fetcher.Fetch(context.WithValue(ctx, fetching{}, true), d)
}

// FetchReferrers implements remotes.ReferrersFetcher.
func (f fetcher) FetchReferrers(ctx context.Context, subject digest.Digest, opts ...remotes.FetchReferrersOpt) ([]ocispec.Descriptor, error) {
	from, ok := f.Fetcher.(remotes.ReferrersFetcher)
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return from.FetchReferrers(ctx, subject, opts...)
}
