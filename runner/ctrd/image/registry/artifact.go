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

// Artifacts fetches what registries have besides images, with the credentials and rules of image pulls. It keeps nothing,
// and needs no containerd. It may be used by one goroutine at a time.
type Artifacts struct {
	access Access
	way    *Way
}

// NewArtifacts makes Artifacts.
func NewArtifacts(access Access) *Artifacts {
	return &Artifacts{access: access, way: &Way{Access: access, Wrap: func(t http.RoundTripper) http.RoundTripper { return t }}}
}

// Artifact is what a registry has under a reference.
type Artifact struct {
	// Digest is that of its manifest.
	Digest string
	Layers []Blob
}

// Blob is a layer of an artifact.
type Blob struct {
	MediaType string
	// Title is the file name in its annotations, if any.
	Title string
	Data  []byte
}

// ErrSame says that a reference names what is known.
var ErrSame = errors.New("the same artifact")

// UnfitError says that a registry has something under a reference that cannot be used.
type UnfitError struct{ Msg string }

// Error implements error.
func (e *UnfitError) Error() string { return e.Msg }

// Unfit returns an UnfitError.
func Unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }

// MaxManifest is the largest manifest of an artifact in bytes.
const MaxManifest = 4 << 20

// CheckArtifact says what is wrong with the reference of an artifact, which must begin with its registry.
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

// Fetch returns what ref names now, with all its layers, which have limit bytes at most together. It asks for the digest
// first, and for nothing else when that is known: the error is ErrSame then. It is an *UnfitError when there is something
// else than such an artifact. With an error it says what is wrong with the plug-ins for logins, too: that may be why.
func (a *Artifacts) Fetch(ctx context.Context, ref, known string, limit int64) (*Artifact, error) {
	if err := CheckArtifact(ref); err != nil {
		return nil, err
	}
	name, err := Normalize(ref)
	if err != nil {
		return nil, err
	}
	resolver, perr := a.resolver(ctx, name)
	got, err := fetchFrom(ctx, resolver, name, known, limit)
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

// ReadBlob reads content of at most limit bytes, and checks that it is what its descriptor says. Addresses in the descriptor
// are not followed.
func ReadBlob(ctx context.Context, f remotes.Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := d.Digest.Validate(); err != nil {
		return nil, Unfit("digest %q: %v", d.Digest, err)
	}
	if d.Size < 0 || d.Size > limit {
		return nil, Unfit("%d bytes, of which %d are allowed; the limit is maxSize", d.Size, limit)
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
		return nil, fmt.Errorf("%d bytes came of %d", len(data), d.Size)
	case d.Digest.Algorithm().FromBytes(data) != d.Digest:
		return nil, Unfit("what came is not what its digest %s says", d.Digest)
	}
	return data, nil
}

// resolver asks with the logins of plug-ins, if there are some, else with that of the file. The error is that of plug-ins, and
// no reason not to ask.
func (a *Artifacts) resolver(ctx context.Context, name string) (remotes.Resolver, error) {
	a.way.Close()
	a.way.Name, a.way.Login, a.way.transports = name, nil, nil
	logins, err := a.access.Providers.Logins(ctx, name)
	a.way.Logins = logins
	a.way.Login = Candidates(WithLogins(ctx, a.way.Logins), name)[0] // nil: none is for this registry
	return a.way.Resolver(ctx), err
}

// Close gives back idle connections.
func (a *Artifacts) Close() { a.way.Close() }
