// Package signature authenticates the manifests of a source: it verifies the bytes of an answer with the public keys of that source before
// anything is parsed, and owns the formats of keys, signatures and versions.
//
// It must not decide which answer is used, and does not know which versions came before.
package signature

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"aead.dev/minisign"

	"monopod/internal/regular"
)

// Kinds of signatures.
const (
	// Minisign is a signature apart from the answer, with its version in the trusted comment.
	Minisign = "minisign"
	// DSSE is an envelope around the manifests, with their version in a comment before them.
	DSSE = "dsse"
)

// Kinds returns all of them.
func Kinds() []string { return []string{Minisign, DSSE} }

// Config lists the keys of a source. One signature by one of the keys is enough.
type Config struct {
	// Kind is one of Kinds.
	Kind string
	// Keys are public keys as text.
	Keys []string
	// KeyFiles hold one public key each. They are read for each answer.
	KeyFiles []string
}

// Detached reports whether the signature is not part of the answer.
func (c Config) Detached() bool { return c.Kind == Minisign }

// Verify checks an answer with the signature that came apart from it, if any. It returns the manifests in the answer, and
// the version they were signed with, which is never 0. It stops with the context: an answer may be large, and its keys many.
func (c Config) Verify(ctx context.Context, body, detached []byte) (payload []byte, version uint64, err error) {
	texts, err := c.texts()
	if err != nil {
		return nil, 0, err
	}
	if c.Kind == Minisign {
		keys, err := parse(texts, minisignKey)
		if err != nil {
			return nil, 0, err
		}
		version, err := verifyMinisign(ctx, keys, body, detached)
		return body, version, err
	}
	keys, err := parse(texts, ed25519Key)
	if err != nil {
		return nil, 0, err
	}
	return openEnvelope(ctx, keys, body)
}

// CheckKey returns an error if text is not a valid public key.
func CheckKey(kind, text string) error {
	var err error
	if kind == Minisign {
		_, err = minisignKey(text)
	} else {
		_, err = ed25519Key(text)
	}
	return err
}

// source is a key as text and what it is called.
type source struct{ name, text string }

func (c Config) texts() ([]source, error) {
	var all []source
	for i, text := range c.Keys {
		all = append(all, source{fmt.Sprintf("key %d", i+1), text})
	}
	for _, path := range c.KeyFiles {
		text, err := readKey(path)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		all = append(all, source{path, text})
	}
	return all, nil
}

// maxKey is more than the file of a public key has.
const maxKey = 64 << 10

func readKey(path string) (string, error) {
	data, err := regular.ReadFile(path, maxKey)
	return string(data), err
}

func parse[K any](texts []source, key func(string) (K, error)) ([]K, error) {
	var keys []K
	for _, t := range texts {
		k, err := key(t.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// minisignKey reads what minisign prints, with or without the comment before it.
func minisignKey(text string) (minisign.PublicKey, error) {
	var key minisign.PublicKey
	if err := key.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
		return key, errors.New("not a public key of minisign")
	}
	return key, nil
}

// ed25519Key reads a public key in PEM, or its 32 bytes in base64.
func ed25519Key(text string) (ed25519.PublicKey, error) {
	text = strings.TrimSpace(text)
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && len(raw) == ed25519.PublicKeySize {
		return raw, nil
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("neither a PUBLIC KEY in PEM nor 32 bytes in base64")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("not an ed25519 key")
	}
	return public, nil
}

// parseVersion reads a version, which begins at 1.
func parseVersion(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a version: expected a positive integer", text)
	}
	return n, nil
}
