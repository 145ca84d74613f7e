package local

import (
	"context"
	"encoding/json"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Target returns the descriptor of a manifest or index in the content store. Its media type is inferred if the content does not state it.
func (s *Store) Target(ctx context.Context, dig string) (ocispec.Descriptor, error) {
	d, err := digest.Parse(dig)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	info, err := s.Client.ContentStore().Info(ctx, d)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := ocispec.Descriptor{Digest: d, Size: info.Size}
	blob, err := ReadMetadata(ctx, s.Client.ContentStore(), desc)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var head struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(blob, &head); err != nil {
		return ocispec.Descriptor{}, err
	}
	switch {
	case head.MediaType != "":
		desc.MediaType = head.MediaType
	case head.Manifests != nil:
		desc.MediaType = ocispec.MediaTypeImageIndex
	default:
		desc.MediaType = ocispec.MediaTypeImageManifest
	}
	return desc, nil
}
