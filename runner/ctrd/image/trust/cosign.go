package trust

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"monopod/internal/regular"
)

// Media types and annotations of cosign.
const (
	// SimpleType is the media type of a simple signing payload. Its signature is in SimpleAnnotation of its layer.
	SimpleType       = "application/vnd.dev.cosign.simplesigning.v1+json"
	SimpleAnnotation = "dev.cosignproject.cosign/signature"
	// BundleType begins the artifact types of bundles, which are referrers of the image.
	BundleType = "application/vnd.dev.sigstore.bundle"

	bundleKind   = "https://sigstore.dev/cosign/sign/v1"
	statementAPI = "application/vnd.in-toto+json"
)

// SimpleTag returns the tag of the signatures of a digest, in the repository of the image.
func SimpleTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// Keys are public keys in PEM, as text or in files that are read on use.
type Keys struct{ Texts, Files []string }

// Parsed are parsed keys.
type Parsed struct {
	keys []signature.Verifier
	// Fingerprint identifies the set of keys.
	Fingerprint string
}

const (
	// maxKeyFile limits the size of a key file in bytes.
	maxKeyFile = 64 << 10
	// maxSignatures limits the signatures in a bundle. Each one is compared with each key, which hashes the statement.
	maxSignatures = 16
)

// Parse parses the keys, and reads the files.
func (k Keys) Parse() (*Parsed, error) {
	texts := slices.Clone(k.Texts)
	for _, path := range k.Files {
		b, err := regular.ReadFile(path, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		texts = append(texts, string(b))
	}
	p, sums := &Parsed{}, []string(nil)
	for i, text := range texts {
		key, der, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		sum := sha256.Sum256(der)
		p.keys, sums = append(p.keys, key), append(sums, hex.EncodeToString(sum[:]))
	}
	slices.Sort(sums)
	all := sha256.Sum256([]byte(strings.Join(slices.Compact(sums), " ")))
	p.Fingerprint = hex.EncodeToString(all[:16])
	return p, nil
}

// CheckKey validates a public key.
func CheckKey(text string) error {
	_, _, err := parseKey(text)
	return err
}

func parseKey(text string) (signature.Verifier, []byte, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || strings.TrimSpace(string(rest)) != "" {
		return nil, nil, errors.New("not one public key in PEM")
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(text))
	if err != nil {
		return nil, nil, errors.New("not a public key in PEM (-----BEGIN PUBLIC KEY-----)")
	}
	if k, ok := key.(*rsa.PublicKey); ok && k.N.BitLen() < 2048 {
		return nil, nil, fmt.Errorf("an RSA key of %d bits, fewer than 2048", k.N.BitLen())
	}
	v, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return nil, nil, fmt.Errorf("a key of type %T, which is not supported for images: %w", key, err)
	}
	return v, block.Bytes, nil
}

// signed reports whether one of the keys signed a message.
func (p *Parsed) signed(message, sig []byte) bool {
	return slices.ContainsFunc(p.keys, func(v signature.Verifier) bool {
		return v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(message)) == nil
	})
}

var (
	errForeign = errors.New("a signature by none of the keys")
	errOther   = errors.New("a signature of something else")
)

// Simple verifies a payload of SimpleType: one of the keys signed it, with a signature in base64, and it is about that digest.
func (p *Parsed) Simple(text []byte, sig64, digest string) error {
	sig, err := base64.StdEncoding.DecodeString(sig64)
	if err != nil {
		return errors.New("a signature that is not in base64")
	}
	if !p.signed(text, sig) {
		return errForeign
	}
	var simple payload.SimpleContainerImage
	if err := json.Unmarshal(text, &simple); err != nil {
		return fmt.Errorf("a payload that cannot be read: %w", err)
	}
	if simple.Critical.Type != payload.CosignSignatureType || simple.Critical.Image.DockerManifestDigest != digest {
		return errOther
	}
	return nil
}

// Bundle verifies a bundle: one of the keys signed its statement, and that is about the digest.
func (p *Parsed) Bundle(data []byte, digest string) error {
	var (
		bundle struct {
			Envelope json.RawMessage `json:"dsseEnvelope"`
		}
		envelope struct {
			Signatures []json.RawMessage `json:"signatures"`
		}
	)
	if err := json.Unmarshal(data, &bundle); err != nil {
		return fmt.Errorf("a bundle that cannot be read: %w", err)
	}
	if err := json.Unmarshal(bundle.Envelope, &envelope); err != nil {
		return fmt.Errorf("a bundle without an envelope: %w", err)
	}
	if n := len(envelope.Signatures); n > maxSignatures {
		return fmt.Errorf("a bundle with %d signatures, more than %d", n, maxSignatures)
	}
	var (
		text []byte
		err  = errors.New("there are no keys")
	)
	if !slices.ContainsFunc(p.keys, func(v signature.Verifier) bool {
		v = dsse.WrapVerifier(v, dsse.WithExpectedPayloadType(statementAPI), dsse.WithDecodedPayload(&text))
		err = v.VerifySignature(bytes.NewReader(bundle.Envelope), nil)
		return err == nil
	}) {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	var statement struct {
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		return fmt.Errorf("a statement that cannot be read: %w", err)
	}
	algorithm, sum, _ := strings.Cut(digest, ":")
	for _, s := range statement.Subject {
		if statement.PredicateType == bundleKind && sum != "" && s.Digest[algorithm] == sum {
			return nil
		}
	}
	return errOther
}
