package config

import (
	"strings"
	"testing"

	"monopod/runner/ctrd/image/trust"
)

func TestRulesForImagesAreChecked(t *testing.T) {
	const key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"
	for name, c := range map[string]struct {
		rule ImageRule
		want string
	}{
		"a registry":             {ImageRule{Match: "r.io"}, ""},
		"denied":                 {ImageRule{Match: "*", Action: "deny"}, ""},
		"signed":                 {ImageRule{Match: "r.io/team", Signature: ImageSignature{Keys: []string{key}, TrustPreloaded: true}}, ""},
		"no match":               {ImageRule{Action: "allow"}, "imagePolicy[0].match: is missing"},
		"a name without host":    {ImageRule{Match: "nginx"}, "does not begin with the host"},
		"another action":         {ImageRule{Match: "r.io", Action: "denny"}, `"denny" is none of allow, deny; did you mean`},
		"denied and signed":      {ImageRule{Match: "r.io", Action: "deny", Signature: ImageSignature{Keys: []string{key}}}, "needs no signature"},
		"a path among keys":      {ImageRule{Match: "r.io", Signature: ImageSignature{Keys: []string{"/etc/key.pub"}}}, "key 1 is not one public key in PEM; a file belongs to keyFiles"},
		"trusted without a key":  {ImageRule{Match: "r.io", Signature: ImageSignature{TrustPreloaded: true}}, "no signature is required"},
		"a tag where none helps": {ImageRule{Match: "r.io/a:1"}, "wildcard, tag or digest"},
	} {
		t.Run(name, func(t *testing.T) {
			check := &configCheck{}
			cfg := &Config{ImagePolicy: []ImageRule{c.rule}}
			check.imageRules(cfg)
			text := check.problems.Error()
			if c.want == "" && len(check.problems) > 0 || c.want != "" && !strings.Contains(text, c.want) {
				t.Errorf("%s, want %q", text, c.want)
			}
		})
	}
	cfg := &Config{ImagePolicy: []ImageRule{{Match: "r.io", Action: "deny"}, {Match: "s.io", Signature: ImageSignature{Keys: []string{key}, KeyFiles: []string{"/k"}, TrustPreloaded: true}}}}
	rules := cfg.ImageRules()
	if len(rules) != 2 || !rules[0].Deny || rules[0].Signed() || rules[1].Deny || !rules[1].TrustPreloaded || len(rules[1].Keys.Files) != 1 {
		t.Errorf("%+v", rules)
	}
	var none trust.Rules
	if got := (&Config{}).ImageRules(); len(got) != len(none) {
		t.Errorf("%+v", got)
	}
}
