//go:build e2e

package imagestore_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	fake "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/trust"
)

// cosigner signs images in a registry as cosign does, with sigstore's library.
type cosigner struct {
	t   *testing.T
	sv  signature.SignerVerifier
	pem string
}

func newCosigner(t *testing.T) cosigner {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	imagetest.Check(t, err)
	sv, err := signature.LoadSignerVerifier(key, crypto.SHA256)
	imagetest.Check(t, err)
	text, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	imagetest.Check(t, err)
	return cosigner{t, sv, string(text)}
}

func (c cosigner) over(message []byte) string {
	c.t.Helper()
	sig, err := c.sv.SignMessage(strings.NewReader(string(message)))
	imagetest.Check(c.t, err)
	return base64.StdEncoding.EncodeToString(sig)
}

// sign puts a signature under the tag that cosign gives it, the way of its versions 1 and 2.
func (c cosigner) sign(repository, digest string) {
	c.t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, repository, digest)
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer: static.NewLayer(payload, trust.SimpleType), Annotations: map[string]string{trust.SimpleAnnotation: c.over(payload)},
	})
	imagetest.Check(c.t, err)
	testimages.Push(c.t, repository+":"+trust.SimpleTag(digest), img)
}

// attach puts a bundle there that refers to the image, the way of version 3.
func (c cosigner) attach(repository, digest string, subject v1.Descriptor) {
	c.t.Helper()
	const payloadType = "application/vnd.in-toto+json"
	statement := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":"https://sigstore.dev/cosign/sign/v1"}`, strings.TrimPrefix(digest, "sha256:"))
	bundle, err := json.Marshal(map[string]any{"dsseEnvelope": dsse.Envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(statement), Signatures: []dsse.Signature{{Sig: c.over(dsse.PAE(payloadType, statement))}},
	}})
	imagetest.Check(c.t, err)
	const media = trust.BundleType + ".v0.3+json"
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), media), mutate.Addendum{Layer: static.NewLayer(bundle, media)})
	imagetest.Check(c.t, err)
	with, ok := mutate.Subject(img, subject).(v1.Image)
	if !ok {
		c.t.Fatal("not an image")
	}
	dig, err := with.Digest()
	imagetest.Check(c.t, err)
	ref, err := name.ParseReference(repository + "@" + dig.String())
	imagetest.Check(c.t, err)
	imagetest.Check(c.t, remote.Write(ref, with))
}

func signedBy(signers ...cosigner) trust.Keys {
	var keys trust.Keys
	for _, s := range signers {
		keys.Texts = append(keys.Texts, s.pem)
	}
	return keys
}

func TestOnlyImagesThatTheRulesAllowAreUsed(t *testing.T) {
	c := imagetest.Containerd(t)
	srv := httptest.NewServer(fake.New(fake.WithReferrersSupport(true)))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	mine, old := newCosigner(t), newCosigner(t)
	digests := map[string]string{}
	for i, repo := range []string{"signed/tag", "signed/bundle", "signed/none", "signed/foreign", "signed/moved", "free/any", "closed/any", "other/any"} {
		img := testimages.FromFiles(t, []testimages.File{{Path: "x", Content: []byte{byte(i)}, Mode: 0o644}}, nil)
		testimages.Push(t, addr+"/"+repo+":1", img)
		dig, err := img.Digest()
		imagetest.Check(t, err)
		digests[repo] = dig.String()
		if repo == "signed/bundle" {
			mt, err := img.MediaType()
			imagetest.Check(t, err)
			size, err := img.Size()
			imagetest.Check(t, err)
			mine.attach(addr+"/"+repo, dig.String(), v1.Descriptor{MediaType: mt, Digest: dig, Size: size})
		}
	}
	mine.sign(addr+"/signed/tag", digests["signed/tag"])
	newCosigner(t).sign(addr+"/signed/foreign", digests["signed/foreign"])
	// The signature of another image under the tag of this one.
	mine.sign(addr+"/signed/moved", digests["signed/tag"])

	rules := trust.Rules{{Match: addr + "/closed", Deny: true}, {Match: addr + "/signed", Keys: signedBy(old, mine)}, {Match: addr + "/free"}}
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Rules = rules })
	ensure := func(s *imagestore.Store, repo string, policy corev1.PullPolicy) error {
		_, err := s.Ensure(t.Context(), addr+"/"+repo+":1", policy)
		return err
	}
	for repo, want := range map[string]string{
		"signed/tag": "", "signed/bundle": "", "free/any": "",
		"signed/none": "has no signature", "signed/foreign": "by none of the keys", "signed/moved": "has no signature",
	} {
		err := ensure(s, repo, corev1.PullIfNotPresent)
		if want == "" && err != nil || want != "" && (imagetest.Reason(err) != runner.ReasonSignatureValidationFailed || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", repo, err, want)
		}
	}
	for _, repo := range []string{"closed/any", "other/any"} {
		if err := ensure(s, repo, corev1.PullIfNotPresent); imagetest.Reason(err) != runner.ReasonImageNotAllowed {
			t.Errorf("%s: %v", repo, err)
		}
	}
	// What is refused is not here.
	here, err := s.Inventory.List(t.Context())
	imagetest.Check(t, err)
	for _, i := range here {
		for _, n := range i.Names {
			if n != addr+"/signed/tag:1" && n != addr+"/signed/bundle:1" && n != addr+"/free/any:1" {
				t.Errorf("%s is here", n)
			}
		}
	}
	// Images from before the rules are verified, and the result is recorded, so that the registry is contacted only once.
	lax := imagetest.Store(t, c, nil)
	imagetest.Check(t, ensure(lax, "signed/none", corev1.PullIfNotPresent))
	if err := ensure(s, "signed/none", corev1.PullNever); imagetest.Reason(err) != runner.ReasonSignatureValidationFailed {
		t.Errorf("it was here before: %v", err)
	}
	mine.sign(addr+"/signed/none", digests["signed/none"])
	imagetest.Check(t, ensure(s, "signed/none", corev1.PullNever))
	imagetest.Check(t, ensure(s, "signed/tag", corev1.PullAlways))
	pinned, err := s.EnsureDigest(t.Context(), "/root", addr+"/signed/tag:1", digests["signed/tag"], corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	if pinned.Target != digests["signed/tag"] {
		t.Errorf("%+v", pinned)
	}
	srv.Close()
	again := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Rules = rules }) // as after a restart
	imagetest.Check(t, ensure(again, "signed/none", corev1.PullIfNotPresent))
	imagetest.Check(t, ensure(again, "signed/tag", corev1.PullIfNotPresent))
	// Other keys make it be asked again, and the registry is away.
	rotated := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Rules = trust.Rules{{Match: "*", Keys: signedBy(old)}} })
	if err := ensure(rotated, "signed/tag", corev1.PullIfNotPresent); imagetest.Reason(err) != runner.ReasonSignatureValidationFailed {
		t.Errorf("another key: %v", err)
	}
}

func TestPreloadedImagesNeedNoSignatureWhereTheyAreTrusted(t *testing.T) {
	c := imagetest.Containerd(t)
	dir := t.TempDir()
	testimages.Archive(t, filepath.Join(dir, "a.tar"), "example.com/a:1")
	for _, trusted := range []bool{true, false} {
		s := imagetest.Store(t, c, func(cfg *imagestore.Config) {
			cfg.PreloadDirs = []string{dir}
			cfg.Rules = trust.Rules{{Match: "example.com", Keys: signedBy(newCosigner(t)), TrustPreloaded: trusted}}
		})
		stop, err := imagetest.RunPreload(t, s)
		imagetest.Check(t, err)
		stop()
		if _, err := s.Ensure(t.Context(), "example.com/a:1", corev1.PullNever); (err == nil) != trusted {
			t.Errorf("trusted: %v: %v", trusted, err)
		}
	}
}

// TestASignatureCountsForWhatWasSigned: a name that comes to stand for something else, by an archive, keeps its labels.
func TestASignatureCountsForWhatWasSigned(t *testing.T) {
	c := imagetest.Containerd(t)
	addr := testimages.Registry(t)
	ref, mine := addr+"/signed/app:1", newCosigner(t)
	file := func(content string) v1.Image {
		return testimages.FromFiles(t, []testimages.File{{Path: "x", Content: []byte(content), Mode: 0o644}}, nil)
	}
	signed, other := file("signed"), file("other")
	testimages.Push(t, ref, signed)
	dig, err := signed.Digest()
	imagetest.Check(t, err)
	mine.sign(addr+"/signed/app", dig.String())
	dir := t.TempDir()
	strict := imagetest.Store(t, c, func(cfg *imagestore.Config) {
		cfg.PreloadDirs, cfg.Rules = []string{dir}, trust.Rules{{Match: "*", Keys: signedBy(mine)}}
	})
	_, err = strict.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	testimages.ArchiveOf(t, filepath.Join(dir, "a.tar"), other, ref)
	stop, err := imagetest.RunPreload(t, strict)
	imagetest.Check(t, err)
	stop()
	if img, err := strict.Ensure(t.Context(), ref, corev1.PullNever); imagetest.Reason(err) != runner.ReasonSignatureValidationFailed {
		t.Errorf("what an archive put in the place of what was signed: %+v, %v", img, err)
	}

	// The other way round: what a registry put in the place of what an archive had brought is not the archive's.
	trusting := imagetest.Store(t, c, func(cfg *imagestore.Config) {
		cfg.PreloadDirs, cfg.Rules = []string{dir}, trust.Rules{{Match: "*", Keys: signedBy(mine), TrustPreloaded: true}}
	})
	stop, err = imagetest.RunPreload(t, trusting)
	imagetest.Check(t, err)
	stop()
	_, err = trusting.Ensure(t.Context(), ref, corev1.PullNever)
	imagetest.Check(t, err)
	testimages.Push(t, ref, file("unsigned"))
	lax := imagetest.Store(t, c, nil)
	_, err = lax.Ensure(t.Context(), ref, corev1.PullAlways)
	imagetest.Check(t, err)
	if img, err := trusting.Ensure(t.Context(), ref, corev1.PullNever); imagetest.Reason(err) != runner.ReasonSignatureValidationFailed {
		t.Errorf("what a registry put in the place of what was preloaded: %+v, %v", img, err)
	}
}

func TestSignaturesInPrivateRegistriesAreFoundByTheLoginsOfThePod(t *testing.T) {
	c := imagetest.Containerd(t)
	var private atomic.Bool
	open := fake.New(fake.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); private.Load() && (user != "me" || password != "secret") {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, r)
	}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	ref, mine := addr+"/signed/app:1", newCosigner(t)
	img := testimages.FromFiles(t, []testimages.File{{Path: "x", Content: []byte("x"), Mode: 0o644}}, nil)
	testimages.Push(t, ref, img)
	dig, err := img.Digest()
	imagetest.Check(t, err)
	mine.sign(addr+"/signed/app", dig.String())
	_, err = imagetest.Store(t, c, nil).Ensure(t.Context(), ref, corev1.PullIfNotPresent) // before there were rules
	imagetest.Check(t, err)
	private.Store(true)
	s := imagetest.Store(t, c, func(cfg *imagestore.Config) { cfg.Rules = trust.Rules{{Match: "*", Keys: signedBy(mine)}} })
	if _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); imagetest.Reason(err) != runner.ReasonSignatureValidationFailed {
		t.Errorf("without a login: %v", err)
	}
	ctx := registry.WithLogins(t.Context(), []registry.Login{{Pattern: addr, User: "me", Password: "secret"}})
	if _, err := s.Ensure(ctx, ref, corev1.PullIfNotPresent); err != nil {
		t.Errorf("with the login of a secret: %v", err)
	}
}
