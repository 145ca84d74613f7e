package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Artifacts fetches artifacts that are not images, with the credentials and mirrors of image pulls. It stores nothing and needs no
// containerd. It is not safe for concurrent use.
type Artifacts struct{ session *session }

// NewArtifacts returns Artifacts. It does no I/O.
func NewArtifacts(access Access) *Artifacts {
	return &Artifacts{&session{access: access, wrap: func(t http.RoundTripper) http.RoundTripper { return t }}}
}

// Artifact is an artifact of a registry.
type Artifact struct {
	// Digest is the digest of its manifest.
	Digest string
	Layers []Blob
}

// Blob is a layer of an artifact.
type Blob struct {
	MediaType string
	// Title is the file name from its annotations, if any.
	Title string
	Data  []byte
}

// ErrSame reports that a reference still has the known digest.
var ErrSame = errors.New("the same artifact")

// UnfitError reports that the content under a reference cannot be used.
type UnfitError struct{ Msg string }

// Error implements error.
func (e *UnfitError) Error() string { return e.Msg }

// Unfit returns an *UnfitError.
func Unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }

// MaxManifest limits the size of the manifest of an artifact, in bytes.
const MaxManifest = 4 << 20

// CheckArtifact validates the reference of an artifact, which must begin with its registry.
func CheckArtifact(ref string) error {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return err
	}
	if host, _, _ := strings.Cut(ref, "/"); reference.Domain(named) != host {
		return fmt.Errorf("%q does not begin with the host of a registry", ref)
	}
	return nil
}

// Fetch returns the artifact under ref with all its layers, together at most limit bytes. It resolves the digest first, and returns
// ErrSame without fetching anything if that is known. Content that is not such an artifact is an *UnfitError. Other errors include those
// of the credential providers, which may be the reason.
func (a *Artifacts) Fetch(ctx context.Context, ref, known string, limit int64) (*Artifact, error) {
	if err := CheckArtifact(ref); err != nil {
		return nil, err
	}
	name, err := Normalize(ref)
	if err != nil {
		return nil, err
	}
	resolver, perr := a.resolver(ctx, name)
	var got *Artifact
	_, err = a.session.mirrors.try(ctx, func(err error) bool { return errors.Is(err, ErrSame) }, func(ctx context.Context) (err error) {
		got, err = fetchFrom(ctx, resolver, name, known, limit)
		return err
	})
	if err == nil || errors.Is(err, ErrSame) || perr == nil {
		return got, err
	}
	return nil, errors.Join(err, perr)
}

func fetchFrom(ctx context.Context, resolver remotes.Resolver, name, known string, limit int64) (*Artifact, error) {
	name, target, err := resolver.Resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	if target.Digest.String() == known {
		return nil, ErrSame
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return nil, err
	}
	if !images.IsManifestType(target.MediaType) {
		return nil, Unfit("it is of type %s, not an artifact with manifests of pods", target.MediaType)
	}
	data, err := ReadBlob(ctx, fetcher, target, MaxManifest)
	if err != nil {
		return nil, fmt.Errorf("manifest of the artifact: %w", err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, Unfit("the manifest of the artifact: %v", err)
	}
	out := &Artifact{Digest: target.Digest.String()}
	for i, l := range manifest.Layers {
		data, err := ReadBlob(ctx, fetcher, l, limit)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
		limit -= int64(len(data))
		out.Layers = append(out.Layers, Blob{MediaType: l.MediaType, Title: l.Annotations[ocispec.AnnotationTitle], Data: data})
	}
	return out, nil
}

// ReadBlob reads at most limit bytes of content and verifies their digest. URLs in the descriptor are ignored.
func ReadBlob(ctx context.Context, f remotes.Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := d.Digest.Validate(); err != nil {
		return nil, Unfit("digest %q: %v", d.Digest, err)
	}
	if d.Size < 0 || d.Size > limit {
		return nil, Unfit("%d bytes, more than maxSize (%d)", d.Size, limit)
	}
	r, err := f.Fetch(ctx, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, d.Size+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) != d.Size:
		return nil, fmt.Errorf("received %d bytes of %d: %w", len(data), d.Size, io.ErrUnexpectedEOF)
	case d.Digest.Algorithm().FromBytes(data) != d.Digest:
		return nil, Unfit("the content does not match its digest %s", d.Digest)
	}
	return data, nil
}

// resolver uses the login of a credential provider, if one matches, else that of AuthFile. The error is that of the providers; the
// resolver is usable with it.
func (a *Artifacts) resolver(ctx context.Context, name string) (remotes.Resolver, error) {
	s := a.session
	s.close()
	logins, err := s.access.Providers.Logins(ctx, name)
	s.name, s.logins, s.transports, s.mirrors = name, logins, nil, &mirrors{}
	s.login = Candidates(WithLogins(ctx, logins), name)[0] // nil: AuthFile
	return s.resolver(ctx), err
}

// Close closes idle connections.
func (a *Artifacts) Close() { a.session.close() }
