package signature

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"aead.dev/minisign"
)

// versionWord begins the word of a trusted comment that has the version.
const versionWord = "version:"

// verifyMinisign returns the version that body was signed with.
func verifyMinisign(ctx context.Context, keys []minisign.PublicKey, body, signature []byte) (uint64, error) {
	if len(signature) == 0 {
		return 0, errors.New("there is no signature")
	}
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return 0, fmt.Errorf("the signature cannot be read: %w", err)
	}
	known := false
	for _, key := range keys {
		if key.ID() != s.KeyID {
			continue
		}
		if known = true; ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if minisign.Verify(key, body, signature) {
			return commentVersion(s.TrustedComment)
		}
	}
	if !known {
		return 0, fmt.Errorf("signed by key %016X, which is not a key of the source", s.KeyID)
	}
	return 0, fmt.Errorf("the signature of key %016X does not match this answer, or was modified", s.KeyID)
}

func commentVersion(comment string) (uint64, error) {
	found := ""
	for word := range strings.FieldsSeq(comment) {
		text, ok := strings.CutPrefix(word, versionWord)
		switch {
		case ok && found != "":
			return 0, errors.New("the trusted comment of the signature has two versions")
		case ok && text == "":
			return 0, errors.New("the version in the trusted comment of the signature is empty")
		case ok:
			found = text
		}
	}
	if found == "" {
		return 0, errors.New("the signature has no version, so that an older answer could not be detected: sign with the trusted comment version:NUMBER (minisign -t)")
	}
	return parseVersion(found)
}
