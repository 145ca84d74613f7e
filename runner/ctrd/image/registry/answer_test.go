package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/jsonlimit"
	"monopod/runner/ctrd/image/registrytest"
)

// endless is a transport whose answers never end. It counts what is read of them.
type endless struct {
	status   int
	encoding string
	text     string
	read     int
}

func (e *endless) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: e.status, Header: http.Header{"Content-Encoding": {e.encoding}}, ContentLength: -1, Body: io.NopCloser(e), Request: r}, nil
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[(e.read+i)%len(e.text)]
	}
	e.read += len(p)
	return len(p), nil
}

const someDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// TestAnswersThatAreNoBlobsAreBounded reads answers that never end: with an error, before more than the limit was read.
func TestAnswersThatAreNoBlobsAreBounded(t *testing.T) {
	const atOnce = 1 << 20 // the most that a reader below asks for
	for name, tt := range map[string]struct {
		method, path string
		endless      endless
		registry     bool
		most         int
		err          error
	}{
		"a token":                      {http.MethodGet, "/token", endless{text: "a"}, false, maxToken, ErrTooLarge},
		"a token after a login":        {http.MethodPost, "/token", endless{text: "a"}, false, maxToken, ErrTooLarge},
		"a token at a blob's path":     {http.MethodGet, "/v2/a/blobs/" + someDigest, endless{text: "a"}, false, maxToken, ErrTooLarge},
		"a token of many values":       {http.MethodGet, "/token", endless{text: "{},"}, false, 4 * maxValues, jsonlimit.ErrTooMany},
		"a manifest":                   {http.MethodGet, "/v2/a/manifests/1", endless{text: "a"}, true, maxAnswer, ErrTooLarge},
		"an index":                     {http.MethodGet, "/v2/a/manifests/" + someDigest, endless{text: "a"}, true, maxAnswer, ErrTooLarge},
		"an index of many values":      {http.MethodGet, "/v2/a/manifests/" + someDigest, endless{text: "{},"}, true, 4 * maxValues, jsonlimit.ErrTooMany},
		"a manifest in a repository":   {http.MethodGet, "/v2/blobs/manifests/1", endless{text: "a"}, true, maxAnswer, ErrTooLarge},
		"referrers":                    {http.MethodGet, "/v2/a/referrers/" + someDigest, endless{text: "a"}, true, maxAnswer, ErrTooLarge},
		"referrers of many values":     {http.MethodGet, "/v2/a/referrers/" + someDigest, endless{text: "[{},"}, true, 4 * maxValues, jsonlimit.ErrTooMany},
		"tags":                         {http.MethodGet, "/v2/a/tags/list", endless{text: "a"}, true, maxAnswer, ErrTooLarge},
		"an error":                     {http.MethodGet, "/v2/a/manifests/1", endless{status: http.StatusForbidden, text: "a"}, true, maxComplaint, nil},
		"an error of a blob":           {http.MethodGet, "/v2/a/blobs/" + someDigest, endless{status: http.StatusNotFound, text: "a"}, true, maxComplaint, nil},
		"an error of a token server":   {http.MethodGet, "/token", endless{status: http.StatusUnauthorized, text: "a"}, false, maxComplaint, nil},
		"a redirect":                   {http.MethodGet, "/v2/a/blobs/" + someDigest, endless{status: http.StatusTemporaryRedirect, text: "a"}, true, maxComplaint, nil},
		"a blob's path without digest": {http.MethodGet, "/v2/a/blobs/1", endless{text: "a"}, true, maxAnswer, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.endless.status == 0 {
				tt.endless.status = http.StatusOK
			}
			ctx := context.WithValue(t.Context(), fetching{}, true) // a token may be requested on behalf of a blob
			r, err := http.NewRequestWithContext(ctx, tt.method, "https://r.example"+tt.path, http.NoBody)
			must(t, err)
			resp, err := answers{next: &tt.endless, registry: tt.registry}.RoundTrip(r)
			must(t, err)
			defer resp.Body.Close()
			if _, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 4*maxAnswer)); !errors.Is(err, tt.err) || tt.err == nil && err != nil {
				t.Errorf("%v", err)
			}
			if tt.endless.read > tt.most+atOnce {
				t.Errorf("%d bytes were read", tt.endless.read)
			}
		})
	}
}

// TestBlobsAreReadAsTheyCome: only their readers know how large they may be.
func TestBlobsAreReadAsTheyCome(t *testing.T) {
	e := &endless{status: http.StatusOK, text: "{},"}
	get := func(ctx context.Context, via *http.Response, url string) *http.Request {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		must(t, err)
		r.Response = via
		return r
	}
	ctx := context.WithValue(t.Context(), fetching{}, true)
	first := get(ctx, nil, "https://r.example/v2/a/blobs/"+someDigest)
	for _, r := range []*http.Request{first, get(ctx, &http.Response{Request: first}, "https://cdn.example/x?sig=1")} {
		resp, err := answers{next: e, registry: true}.RoundTrip(r)
		must(t, err)
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 2*maxAnswer)); n != 2*maxAnswer || err != nil {
			t.Errorf("%s: %d, %v", r.URL, n, err)
		}
	}
	resp, err := answers{next: e, registry: true}.RoundTrip(get(t.Context(), nil, "https://r.example/v2/a/blobs/"+someDigest))
	must(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("a blob that is not fetched, but resolved, is read to its end, which never comes")
	}
}

func TestAnAnswerIsRefusedByItsHeaders(t *testing.T) {
	ctx := context.WithValue(t.Context(), fetching{}, true)
	for _, tt := range []struct {
		path, encoding string
		length         int64
		good           bool
	}{
		{"/blobs/" + someDigest, "", 1 << 40, true},
		{"/blobs/" + someDigest, "gzip", -1, true},
		{"/blobs/" + someDigest, "identity", -1, true},
		{"/blobs/" + someDigest, "zstd", -1, false}, // may need 512 MiB for a window
		{"/blobs/" + someDigest, strings.Repeat("deflate,", 1000), -1, false},
		{"/manifests/1", "", maxAnswer, true},
		{"/manifests/1", "", maxAnswer + 1, false},
		{"/manifests/1", "gzip", 100, false}, // the transport has decompressed what it asked for
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://r.example/v2/a"+tt.path, http.NoBody)
		must(t, err)
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Encoding": {tt.encoding}}, ContentLength: tt.length, Request: r}
		if err := (answers{registry: true}).check(resp, isBlob(r)); (err == nil) != tt.good {
			t.Errorf("%s %.20q %d: %v", tt.path, tt.encoding, tt.length, err)
		}
	}
}

// TestAHostileTokenServerIsCutOff: containerd reads its whole answer. The registry names it, with a path of its choice.
func TestAHostileTokenServerIsCutOff(t *testing.T) {
	const large = 64 << 20
	for name, hosts := range map[string]bool{"default": false, "hosts.toml": true} {
		t.Run(name, func(t *testing.T) {
			l := registrytest.New(t)
			ref := l.Host + "/fleet/pods:1"
			l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
			var sent atomic.Int64
			tokens := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				part := []byte(strings.Repeat("a", 1<<16))
				_, err := io.WriteString(rw, `{"token":"`)
				for n := 0; err == nil && n < large; n += len(part) {
					_, err = rw.Write(part)
					sent.Add(int64(len(part)))
				}
				_, _ = io.WriteString(rw, `"}`)
			}))
			t.Cleanup(tokens.Close)
			challenge := func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Authorization") != "" {
					return false
				}
				rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/v2/a/blobs/%s",service="x"`, tokens.URL, someDigest))
				rw.WriteHeader(http.StatusUnauthorized)
				return true
			}
			l.Before.Store(&challenge)
			if _, err := fetch(t, NewArtifacts(accessTo(t, l, hosts)), ref, "", 100); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%v", err)
			}
			if n := sent.Load(); n == 0 || n >= large {
				t.Errorf("the server could send %d bytes", n)
			}
		})
	}
}

// TestHeadersOfARegistryAreBounded: all of them are in memory before we see any.
func TestHeadersOfARegistryAreBounded(t *testing.T) {
	for name, hosts := range map[string]bool{"default": false, "hosts.toml": true} {
		t.Run(name, func(t *testing.T) {
			l := registrytest.New(t)
			ref := l.Host + "/fleet/pods:1"
			l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
			long := func(rw http.ResponseWriter, _ *http.Request) bool {
				rw.Header().Set("X-Long", strings.Repeat("a", 2*maxHeaders))
				return false
			}
			l.Before.Store(&long)
			if _, err := fetch(t, NewArtifacts(accessTo(t, l, hosts)), ref, "", 100); err == nil || !strings.Contains(err.Error(), "header") {
				t.Errorf("%v", err)
			}
		})
	}
}

// accessTo reaches a registry by the default settings, or by those of a hosts.toml.
func accessTo(t *testing.T, l *registrytest.Library, hosts bool) Access {
	t.Helper()
	if !hosts {
		return Access{}
	}
	root := t.TempDir()
	dir := filepath.Join(root, l.Host)
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "hosts.toml"), fmt.Appendf(nil, "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", l.URL), 0o600))
	return Access{HostsDirs: []string{root}}
}

// TestPullsFetchFromTheRegistryOnly: an image does not make us request addresses of its choice, without any limit.
func TestPullsFetchFromTheRegistryOnly(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	l := registrytest.New(t)
	ref := l.Host + "/fleet/pods:1"
	l.Push(t, ref, registrytest.Layer{MediaType: "application/yaml", Data: []byte("a: 1\n")})
	must(t, NewClient(Access{}, Limits{}).Try(t.Context(), ref, nil, func(ctx context.Context, resolver remotes.Resolver) error {
		f, err := resolver.Fetcher(ctx, ref)
		if err != nil {
			return err
		}
		r, err := f.Fetch(ctx, ocispec.Descriptor{
			MediaType: images.MediaTypeDockerSchema2LayerForeign, Digest: digest.FromString("a: 1\n"), Size: 5, URLs: []string{elsewhere.URL},
		})
		if err != nil {
			return err
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		if string(got) != "a: 1\n" {
			t.Errorf("%q", got)
		}
		return err
	}))
	if n := asked.Load(); n > 0 {
		t.Errorf("asked elsewhere %d times", n)
	}
}
