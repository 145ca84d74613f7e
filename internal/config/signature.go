package config

import (
	"fmt"
	"slices"
	"strings"

	"monopod/watcher/fetch"
	"monopod/watcher/signature"
)

// SourceSignature says who must vouch for the answers of a source; nobody when Kind is empty.
type SourceSignature struct {
	Kind     string   `koanf:"kind"     yaml:"kind"               json:"kind"`
	Keys     []string `koanf:"keys"     yaml:"keys,omitempty"     json:"keys,omitempty"`
	KeyFiles []string `koanf:"keyFiles" yaml:"keyFiles,omitempty" json:"keyFiles,omitempty"`
}

func sourceSignatureKeys() []Key {
	return []Key{
		{Path: "signature.kind", Kind: kindString, doc: "What an answer must be signed with, or it is not used: `minisign`: there is a signature at the URL with `.minisig` behind its path, with the trusted comment `version:NUMBER`; `dsse`: the answer is an envelope signed with ed25519, and the manifests in it begin with `# monopod.dev/set-version: NUMBER`. Answers with a lower version than an earlier one are not used."},
		{Path: "signature.keys", Kind: KindStrings, doc: "Public keys, of which one must have signed: for `minisign` as it prints them, for `dsse` 32 bytes in base64 or PEM."},
		{Path: "signature.keyFiles", Kind: kindPaths, doc: "Files with a public key each, besides `signature.keys`; they are read for each new answer."},
	}
}

// subKeys are the keys below a section, without its name.
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

// check finds what is wrong with the signature of an entry.
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
		bad("signature.keys", "no key is given, so that nobody could vouch for an answer", "set keys or keyFiles")
	}
	for i, key := range s.Keys {
		if err := signature.CheckKey(s.Kind, key); err != nil {
			bad("signature.keys", fmt.Sprintf("key %d is %v", i+1, err), "a file belongs to keyFiles")
		}
	}
}

// Verification is how answers of the source are verified, and whether signatures come apart from them; nil: they are taken as they are.
func (s *SourceSignature) Verification() (verify fetch.Verify, detached bool) {
	if s.Kind == "" {
		return nil, false
	}
	c := signature.Config{Kind: s.Kind, Keys: s.Keys, KeyFiles: s.KeyFiles}
	return c.Verify, c.Detached()
}
