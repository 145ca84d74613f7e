package image

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

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

// signatures puts signatures of a digest under its tag, one of each key in this order, as cosign does with those of several
// releases. It returns the keys.
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

// TestTheLastSignaturesAreLookedAt: those that were added most recently are at the end, and before them may be many of a key
// that does not count any more.
func TestTheLastSignaturesAreLookedAt(t *testing.T) {
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
			w := &registry.Way{Name: repository, Wrap: func(t http.RoundTripper) http.RoundTripper { return t }}
			defer w.Close()
			n, err := simpleSigned(t.Context(), w.Resolver(t.Context()), repository, target, parsed)
			if (err == nil) != c.good || n > maxSignatures || err != nil && strings.Count(err.Error(), "by none of the keys") != 1 {
				t.Errorf("%d were looked at, %v", n, err)
			}
		})
	}
}

// TestWhatIsWrongWithASignatureIsToldOnce, and not for each of the logins.
func TestWhatIsWrongWithASignatureIsToldOnce(t *testing.T) {
	l := registrytest.New(t)
	ref := l.Host + "/team/app:1"
	target := l.Push(t, ref, registrytest.Layer{MediaType: "application/octet-stream", Data: []byte("a")})
	_, keys := newSigner(t)
	parsed, err := keys.Parse()
	must(t, err)
	s := &Store{limits: registry.NewTurns(registry.Limits{})}
	ctx := registry.WithLogins(t.Context(), []registry.Login{{Pattern: l.Host, User: "a", Password: "b"}, {Pattern: l.Host + "/team", User: "c", Password: "d"}})
	err = s.verifyAsAny(ctx, &Image{Name: ref, Target: digest.Digest(target).String()}, parsed)
	if err == nil || strings.Count(err.Error(), "has no signature") != 1 {
		t.Error(err)
	}
}
