package config

import (
	"fmt"
	"slices"
	"strings"

	"monopod/watcher/fetch"
	"monopod/watcher/signature"
)

// SourceSignature configures how answers of a source are verified; with an empty Kind, they are not.
type SourceSignature struct {
	Kind     string   `koanf:"kind"     yaml:"kind"               json:"kind"`
	Keys     []string `koanf:"keys"     yaml:"keys,omitempty"     json:"keys,omitempty"`
	KeyFiles []string `koanf:"keyFiles" yaml:"keyFiles,omitempty" json:"keyFiles,omitempty"`
}

func sourceSignatureKeys() []Key {
	return []Key{
		{Path: "signature.kind", Kind: kindString, doc: "How answers must be signed to be used. `minisign`: a detached signature at the URL with `.minisig` appended to its path, with the trusted comment `version:NUMBER`. `dsse`: the answer is an envelope signed with ed25519, and the manifests in it begin with `# monopod.dev/set-version: NUMBER`. Answers with a lower version than an earlier one are refused. Empty: no signature is needed."},
		{Path: "signature.keys", Kind: KindStrings, doc: "Public keys; one of them must have signed. `minisign`: as printed by minisign; `dsse`: 32 bytes in base64, or PEM."},
		{Path: "signature.keyFiles", Kind: kindPaths, doc: "Files with one public key each, in addition to `signature.keys`; they are read for each new answer."},
	}
}

// subKeys returns the keys below a section, without its name.
func subKeys(keys []Key, section string) []Key {
	var out []Key
	for _, k := range keys {
		if rest, ok := strings.CutPrefix(k.Path, section+"."); ok {
			k.Path = rest
			out = append(out, k)
		}
	}
	return out
}

// check checks the signature of an entry.
func (s *SourceSignature) check(bad func(key, msg, hint string)) {
	if s.Kind == "" {
		if len(s.Keys)+len(s.KeyFiles) > 0 {
			bad("signature.kind", "is missing", "write "+strings.Join(signature.Kinds(), " or "))
		}
		return
	}
	if !slices.Contains(signature.Kinds(), s.Kind) {
		bad("signature.kind", fmt.Sprintf("%q is none of %s", s.Kind, strings.Join(signature.Kinds(), ", ")), DidYouMean(s.Kind, signature.Kinds()))
		return
	}
	if len(s.Keys)+len(s.KeyFiles) == 0 {
		bad("signature.keys", "no key is given to verify answers with", "set keys or keyFiles")
	}
	for i, key := range s.Keys {
		if err := signature.CheckKey(s.Kind, key); err != nil {
			bad("signature.keys", fmt.Sprintf("key %d is %v", i+1, err), "a file belongs to keyFiles")
		}
	}
}

// Verification returns how answers of the source are verified, and whether signatures are in a separate file; a nil verify accepts any
// answer.
func (s *SourceSignature) Verification() (verify fetch.Verify, detached bool) {
	if s.Kind == "" {
		return nil, false
	}
	c := signature.Config{Kind: s.Kind, Keys: s.Keys, KeyFiles: s.KeyFiles}
	return c.Verify, c.Detached()
}
