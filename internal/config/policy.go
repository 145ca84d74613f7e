package config

import (
	"fmt"

	"monopod/runner/ctrd/image/trust"
)

// ImageRule is an entry of `imagePolicy`. Its keys are described in imageRuleKeys.
type ImageRule struct {
	Match     string         `koanf:"match"     yaml:"match"               json:"match"`
	Action    string         `koanf:"action"    yaml:"action,omitempty"    json:"action,omitempty"`
	Signature ImageSignature `koanf:"signature" yaml:"signature,omitempty" json:"signature,omitzero"`
}

// ImageSignature holds the keys for the images of a rule; without keys, no signature is needed.
type ImageSignature struct {
	Keys           []string `koanf:"keys"           yaml:"keys,omitempty"           json:"keys,omitempty"`
	KeyFiles       []string `koanf:"keyFiles"       yaml:"keyFiles,omitempty"       json:"keyFiles,omitempty"`
	TrustPreloaded bool     `koanf:"trustPreloaded" yaml:"trustPreloaded,omitempty" json:"trustPreloaded,omitempty"`
}

// Actions of an ImageRule.
const (
	ruleAllow = "allow"
	RuleDeny  = "deny"
)

func imageRuleKeys() []Key {
	return []Key{
		{Path: "match", Kind: kindString, derived: required, doc: "Images the rule applies to: `HOST[:PORT]` of a registry, or `HOST[:PORT]/PATH` for everything below that path; labels of the host may have wildcards, as in `*.example.com`. `*`: all images. An image without a registry belongs to `docker.io`, one of a single word to `docker.io/library`; `docker.io/NAME` matches the latter, too."},
		{Path: "action", Kind: kindString, def: ruleAllow, doc: "Whether these images may be used: `allow` or `deny`."},
		{Path: "signature.keys", Kind: KindStrings, doc: "Public keys in PEM (ECDSA, Ed25519 or RSA); one of them must have signed the image, as `cosign sign --key` does."},
		{Path: "signature.keyFiles", Kind: kindPaths, doc: "Files with one public key each, in addition to `signature.keys`; they are read each time an image is verified."},
		{Path: "signature.trustPreloaded", Kind: kindBool, def: false, doc: "Whether an image needs no signature while an archive in one of the `preloadDirectories` contains it."},
	}
}

// imageRules checks imagePolicy.
func (c *configCheck) imageRules(cfg *Config) {
	for i := range cfg.ImagePolicy {
		r := &cfg.ImagePolicy[i]
		bad := func(key, msg, hint string) {
			c.problems = append(c.problems, Problem{Where: c.sources["imagePolicy"], Key: fmt.Sprintf("imagePolicy[%d].%s", i, key), Msg: msg, Hint: hint})
		}
		if err := trust.CheckMatch(r.Match); err != nil {
			bad("match", err.Error(), "write it as registry.example, *.example.com or registry.example:5000/team")
		}
		signed := len(r.Signature.Keys)+len(r.Signature.KeyFiles) > 0
		switch {
		case r.Action != "" && r.Action != ruleAllow && r.Action != RuleDeny:
			bad("action", fmt.Sprintf("%q is none of allow, deny", r.Action), DidYouMean(r.Action, []string{ruleAllow, RuleDeny}))
		case r.Action == RuleDeny && signed:
			bad("action", "a denied image needs no signature", "remove one of them")
		case r.Signature.TrustPreloaded && !signed:
			bad("signature.trustPreloaded", "no signature is required", "set signature.keys or signature.keyFiles")
		}
		for n, key := range r.Signature.Keys {
			if err := trust.CheckKey(key); err != nil {
				bad("signature.keys", fmt.Sprintf("key %d is %v", n+1, err), "a file belongs to keyFiles")
			}
		}
	}
}

// ImageRules returns the rules of imagePolicy.
func (c *Config) ImageRules() trust.Rules {
	var rules trust.Rules
	for _, r := range c.ImagePolicy {
		rules = append(rules, trust.Rule{
			Match: r.Match, Deny: r.Action == RuleDeny, TrustPreloaded: r.Signature.TrustPreloaded,
			Keys: trust.Keys{Texts: r.Signature.Keys, Files: r.Signature.KeyFiles},
		})
	}
	return rules
}
