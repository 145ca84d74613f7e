package trust_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"monopod/runner/ctrd/image/trust"
)

func TestTheFirstRuleThatMatchesCounts(t *testing.T) {
	rules := trust.Rules{
		{Match: "registry.example/team/secret", Deny: true},
		{Match: "registry.example/team"},
		{Match: "*.corp.example:5000"},
		{Match: "docker.io/redis", Deny: true},
		{Match: "docker.io/library/*"},
		{Match: "docker.io/team"},
	}
	for name, want := range map[string]string{
		"registry.example/team:1":            "",
		"registry.example/team/app:1":        "",
		"registry.example/team/app@sha256:0": "",
		"registry.example/team/secret:1":     "rule 1 denies",
		"registry.example/team/secret/x:1":   "rule 1 denies",
		"Registry.EXAMPLE/team/secret:1":     "rule 1 denies",
		"registry.example/team/secrets:1":    "",
		"registry.example/teams/app:1":       "no rule matches it",
		"registry.example/other:1":           "no rule matches it",
		"evil.registry.example/team/app:1":   "no rule matches it",
		"registry.example:443/team/app:1":    "",
		"registry.example:443/team/secret:1": "rule 1 denies",
		"registry.example:80/team/app:1":     "no rule matches it",
		"a.corp.example:5000/x:1":            "",
		"a.b.corp.example:5000/x:1":          "no rule matches it",
		"a.corp.example/x:1":                 "no rule matches it",
		"docker.io/library/nginx:1":          "",
		"docker.io/someone/nginx:1":          "no rule matches it",
		"docker.io/library/redis:1":          "rule 4 denies", // what redis is completed to
		"docker.io/redis/redis-stack:1":      "rule 4 denies",
		"docker.io/library/redis-stack:1":    "",
		"docker.io/team/library/redis":       "",
		"docker.io/other/library/team":       "no rule matches it",
	} {
		_, err := rules.For(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if r, err := (trust.Rules{}).For("x.io/a"); r != nil || err != nil {
		t.Errorf("without rules: %v, %v", r, err)
	}
	if r, err := (trust.Rules{{Match: "*"}}).For("x.io/a"); r == nil || err != nil {
		t.Errorf("for all: %v, %v", r, err)
	}
}

func TestPatternsAreChecked(t *testing.T) {
	for pattern, good := range map[string]bool{
		"*": true, "r.io": true, "r.io:5000": true, "r.io/a/b": true, "r.io/a/*": true, "*.r.io": true, "localhost/a": true, "docker.io/nginx": true, "r.io/*": true,
		"index.docker.io": false, "index.docker.io/library/nginx": false, "r.io/a*": false, "r.io/a/b*": false,
		"": false, "nginx": false, "team/app": false, "/a": false, "r.io/": false, "r.io/a*b": false, "r.io/a:1": false, "r.io/a@sha256:1": false, "r[.io": false,
	} {
		if err := trust.CheckMatch(pattern); (err == nil) != good {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// signer signs as cosign does, with sigstore's library.
type signer struct {
	signature.SignerVerifier
	pem string
}

func newSigner(t *testing.T, kind string) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	check(t, err)
	sv, err := signature.LoadSignerVerifier(key, crypto.SHA256)
	check(t, err)
	text, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	check(t, err)
	return signer{sv, string(text)}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s signer) sign(t *testing.T, message []byte) string {
	t.Helper()
	sig, err := s.SignMessage(strings.NewReader(string(message)))
	check(t, err)
	return base64.StdEncoding.EncodeToString(sig)
}

func payload(kind, digest string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"r.io/a"},"image":{"docker-manifest-digest":%q},"type":%q},"optional":null}`, digest, kind)
}

func (s signer) bundle(t *testing.T, payloadType, predicate, sum string) []byte {
	t.Helper()
	statement := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q}`, sum, predicate)
	b, err := json.Marshal(map[string]any{"mediaType": trust.BundleType + ".v0.3+json", "dsseEnvelope": dsse.Envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(statement),
		Signatures: []dsse.Signature{{Sig: s.sign(t, dsse.PAE(payloadType, statement))}},
	}})
	check(t, err)
	return b
}

func TestSignaturesOfSigstoresLibraryAreVerified(t *testing.T) {
	other := newSigner(t, "ecdsa")
	for _, kind := range []string{"ecdsa", "rsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			s := newSigner(t, kind)
			file := filepath.Join(t.TempDir(), "key.pub")
			check(t, os.WriteFile(file, []byte(s.pem), 0o600))
			keys, err := trust.Keys{Texts: []string{other.pem}, Files: []string{file}}.Parse()
			check(t, err)
			foreign, err := trust.Keys{Texts: []string{other.pem}}.Parse()
			check(t, err)
			if keys.Fingerprint == foreign.Fingerprint || keys.Fingerprint == "" {
				t.Errorf("fingerprints: %q, %q", keys.Fingerprint, foreign.Fingerprint)
			}
			good := payload("cosign container image signature", digest)
			sum := strings.TrimPrefix(digest, "sha256:")
			const statement, cosign = "application/vnd.in-toto+json", "https://sigstore.dev/cosign/sign/v1"
			for name, c := range map[string]struct {
				err  error
				want string
			}{
				"good":              {keys.Simple(good, s.sign(t, good), digest), ""},
				"another key":       {foreign.Simple(good, s.sign(t, good), digest), "by none of the keys"},
				"another digest":    {keys.Simple(good, s.sign(t, good), strings.Replace(digest, "a", "b", 1)), "of something else"},
				"another type":      {keys.Simple(payload("atomic", digest), s.sign(t, payload("atomic", digest)), digest), "of something else"},
				"changed":           {keys.Simple(append(good, ' '), s.sign(t, good), digest), "by none of the keys"},
				"no base64":         {keys.Simple(good, "***", digest), "base64"},
				"no signature":      {keys.Simple(good, "", digest), "by none of the keys"},
				"no JSON":           {keys.Simple([]byte("x"), s.sign(t, []byte("x")), digest), "cannot be read"},
				"bundle":            {keys.Bundle(s.bundle(t, statement, cosign, sum), digest), ""},
				"bundle of another": {foreign.Bundle(s.bundle(t, statement, cosign, sum), digest), "by none of the keys"},
				"bundle for other":  {keys.Bundle(s.bundle(t, statement, cosign, "bb"), digest), "of something else"},
				"attestation":       {keys.Bundle(s.bundle(t, statement, "https://spdx.dev/Document", sum), digest), "of something else"},
				"another payload":   {keys.Bundle(s.bundle(t, "text/plain", cosign, sum), digest), "text/plain"},
				"no bundle":         {keys.Bundle([]byte("{"), digest), "cannot be read"},
			} {
				if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
					t.Errorf("%s: %v, want %q", name, c.err, c.want)
				}
			}
		})
	}
}

// TestABundleHasFewSignatures: each one costs a hash of the statement for each key.
func TestABundleHasFewSignatures(t *testing.T) {
	s := newSigner(t, "ed25519")
	keys, err := trust.Keys{Texts: []string{s.pem}}.Parse()
	check(t, err)
	var bundle struct {
		Envelope dsse.Envelope `json:"dsseEnvelope"`
	}
	sum := strings.TrimPrefix(digest, "sha256:")
	check(t, json.Unmarshal(s.bundle(t, "application/vnd.in-toto+json", "https://sigstore.dev/cosign/sign/v1", sum), &bundle))
	valid, invalid := bundle.Envelope.Signatures[0], dsse.Signature{Sig: base64.StdEncoding.EncodeToString(make([]byte, ed25519.SignatureSize))}
	for invalids, want := range map[int]string{0: "", 15: "", 16: "17 signatures, more than 16", 1500: "1501 signatures, more than 16"} {
		bundle.Envelope.Signatures = append(slices.Repeat([]dsse.Signature{invalid}, invalids), valid)
		data, err := json.Marshal(bundle)
		check(t, err)
		if err := keys.Bundle(data, digest); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d and a valid one: %v, want %q", invalids, err, want)
		}
	}
}

func TestKeysAreChecked(t *testing.T) {
	good := newSigner(t, "ecdsa").pem
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	check(t, err)
	weak, err := cryptoutils.MarshalPublicKeyToPEM(small.Public())
	check(t, err)
	for text, want := range map[string]string{
		good: "", "": "PEM", "ssh-ed25519 AAAA": "PEM", good + good: "not one", string(weak): "1024 bits",
		"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n": "not a public key",
	} {
		if err := trust.CheckKey(text); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := (trust.Keys{Files: []string{"/does/not/exist"}}).Parse(); err == nil {
		t.Error("a file that is not there is a key")
	}
}
