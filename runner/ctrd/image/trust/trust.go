// Package trust decides which images may be used, by their names and signatures. It owns the rules and the formats of signatures; it must not
// contact a registry or store anything.
package trust

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rule applies to images whose names match.
type Rule struct {
	// Match is host[:port][/path]: images of that host, or below that path. Labels of the host may have wildcards; "*" matches
	// all images.
	Match string
	// Deny forbids the use of these images.
	Deny bool
	// Keys are public keys; one of them must have signed an image. Without keys, no signature is needed.
	Keys Keys
	// TrustPreloaded accepts images from archives of preload directories without a signature.
	TrustPreloaded bool
}

// Signed reports whether a signature is needed.
func (r *Rule) Signed() bool { return len(r.Keys.Texts)+len(r.Keys.Files) > 0 }

// Rules are applied in order; the first that matches counts. Without rules all images may be used, with rules only those that match one.
type Rules []Rule

// DeniedError reports an image whose name is not allowed.
type DeniedError struct{ Image, Why string }

// Error implements error.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("imagePolicy does not allow image %s: %s", e.Image, e.Why)
}

// For returns the rule for an image, a normalised name, or nil if there are no rules. The error is a *DeniedError.
func (rs Rules) For(name string) (*Rule, error) {
	for i := range rs {
		r := &rs[i]
		if !r.matches(name) {
			continue
		}
		if r.Deny {
			return nil, &DeniedError{name, fmt.Sprintf("rule %d denies what matches %q", i+1, r.Match)}
		}
		return r, nil
	}
	if len(rs) > 0 {
		return nil, &DeniedError{name, "no rule matches it"}
	}
	return nil, nil //nolint:nilnil // there is no rule, and that is fine
}

// matches compares whole labels of the host, case-insensitively, and whole elements of the path. Official images of Docker Hub, such as
// docker.io/library/nginx, match as docker.io/nginx, too.
func (r *Rule) matches(name string) bool {
	if r.Match == "*" {
		return true
	}
	wantHost, wantPath, _ := strings.Cut(r.Match, "/")
	host, rest, _ := strings.Cut(name, "/")
	rest, _, _ = strings.Cut(rest, "@")
	rest, _, _ = strings.Cut(rest, ":")
	if !matchHost(wantHost, host) {
		return false
	}
	wantPath = strings.TrimSuffix(strings.TrimSuffix(wantPath, "*"), "/")
	if wantPath == "" || rest == wantPath || strings.HasPrefix(rest, wantPath+"/") {
		return true
	}
	short, official := strings.CutPrefix(rest, "library/")
	return official && host == "docker.io" && short == wantPath
}

func matchHost(pattern, host string) bool {
	const usual = ":443" // the same registry as without
	patternName, patternPort, _ := strings.Cut(strings.TrimSuffix(pattern, usual), ":")
	name, port, _ := strings.Cut(strings.TrimSuffix(host, usual), ":")
	patterns, labels := strings.Split(strings.ToLower(patternName), "."), strings.Split(strings.ToLower(name), ".")
	if patternPort != port || len(patterns) != len(labels) {
		return false
	}
	for i := range patterns {
		if ok, err := path.Match(patterns[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// CheckMatch validates a pattern.
func CheckMatch(pattern string) error {
	host, rest, nested := strings.Cut(pattern, "/")
	switch {
	case pattern == "*":
		return nil
	case pattern == "":
		return fmt.Errorf("is missing")
	case host == "" || !strings.ContainsAny(host, ".:*") && host != "localhost":
		return fmt.Errorf("%q does not begin with the host of a registry", pattern)
	case strings.EqualFold(host, "index.docker.io"):
		return fmt.Errorf("%q is called docker.io in the names of images", host)
	case strings.ContainsAny(strings.TrimSuffix("/"+rest, "/*"), "*?[@:") || nested && rest == "":
		return fmt.Errorf("%q has a path with a wildcard, tag or digest", pattern)
	}
	if slices.ContainsFunc(strings.Split(host, "."), func(label string) bool { _, err := path.Match(label, ""); return err != nil }) {
		return fmt.Errorf("%q has a wildcard that is not closed", pattern)
	}
	return nil
}
