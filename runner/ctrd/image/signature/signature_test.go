package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/registrytest"
	"monopod/runner/ctrd/image/trust"
)

// signatures pushes one signature of a digest by each signer, in this order, to the tag where cosign puts them.
func signatures(t *testing.T, repository, digest string, signers ...signature.SignerVerifier) {
	t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, repository, digest)
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, s := range signers {
		sig, err := s.SignMessage(strings.NewReader(string(payload)))
		must(t, err)
		img, err = mutate.Append(img, mutate.Addendum{
			Layer: static.NewLayer(payload, trust.SimpleType), Annotations: map[string]string{trust.SimpleAnnotation: base64.StdEncoding.EncodeToString(sig)},
		})
		must(t, err)
	}
	ref, err := name.ParseReference(repository+":"+trust.SimpleTag(digest), name.Insecure)
	must(t, err)
	must(t, remote.Write(ref, img))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSigner(t *testing.T) (signature.SignerVerifier, trust.Keys) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	sv, err := signature.LoadSignerVerifier(key, crypto.SHA256)
	must(t, err)
	text, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	must(t, err)
	return sv, trust.Keys{Texts: []string{string(text)}}
}

// TestLastSignaturesAreCheckedFirst: cosign appends signatures, after possibly many by keys that are no longer trusted.
func TestLastSignaturesAreCheckedFirst(t *testing.T) {
	l := registrytest.New(t)
	repository := l.Host + "/team/app"
	target := l.Push(t, repository+":1", registrytest.Layer{MediaType: "application/octet-stream", Data: []byte("a")})
	old, _ := newSigner(t)
	mine, keys := newSigner(t)
	parsed, err := keys.Parse()
	must(t, err)
	for name, c := range map[string]struct {
		before, after int
		good          bool
	}{
		"alone":                     {0, 0, true},
		"the last of many":          {2 * maxSignatures, 0, true},
		"just among those":          {0, maxSignatures - 1, true},
		"behind too many":           {0, maxSignatures, false},
		"few before and few behind": {5, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []signature.SignerVerifier
			for range c.before {
				all = append(all, old)
			}
			all = append(all, mine)
			for range c.after {
				all = append(all, old)
			}
			signatures(t, repository, target, all...)
			n := 0
			err := registry.NewClient(registry.Access{}, registry.Limits{}).Try(t.Context(), repository, nil, func(ctx context.Context, resolver remotes.Resolver) (err error) {
				n, err = verifySimple(ctx, resolver, repository, target, parsed)
				return err
			})
			if (err == nil) != c.good || n > maxSignatures || err != nil && strings.Count(err.Error(), "by none of the keys") != 1 {
				t.Errorf("%d were checked, %v", n, err)
			}
		})
	}
}

func TestInvalidSignatureIsReportedOnceForAllLogins(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/team/app:1"
	target := l.Push(t, ref, registrytest.Layer{MediaType: "application/octet-stream", Data: []byte("a")})
	_, keys := newSigner(t)
	ctx := registry.WithLogins(t.Context(), []registry.Login{{Pattern: l.Host, User: "a", Password: "b"}, {Pattern: l.Host + "/team", User: "c", Password: "d"}})
	err := registry.NewClient(registry.Access{}, registry.Limits{}).Try(ctx, ref, nil, func(ctx context.Context, resolver remotes.Resolver) error {
		_, err := Verify(ctx, resolver, ref, digest.Digest(target), &trust.Rule{Keys: keys})
		return err
	})
	if err == nil || strings.Count(err.Error(), "has no signature") != 1 {
		t.Error(err)
	}
}
