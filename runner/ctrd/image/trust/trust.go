// Package trust says which images may be used, by their names and by who has signed them. It owns the rules and the formats
// of signatures; it asks no registry and keeps nothing.
package trust

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rule says what counts for images whose names match.
type Rule struct {
	// Match is host[:port][/path]: images of that host, or below that path. Labels of the host may have wildcards; "*" matches
	// all images.
	Match string
	// Deny: these images are not used.
	Deny bool
	// Keys, if there are any, are those of which one must have signed an image.
	Keys Keys
	// TrustPreloaded: images in an archive of a preload directory need no signature.
	TrustPreloaded bool
}

// Signed says that a signature is asked for.
func (r *Rule) Signed() bool { return len(r.Keys.Texts)+len(r.Keys.Files) > 0 }

// Rules are asked in their order; the first one that matches counts. Without rules all images may be used, with rules only
// those that one of them matches.
type Rules []Rule

// DeniedError says that an image must not be used because of its name.
type DeniedError struct{ Image, Why string }

// Error implements error.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("imagePolicy does not allow image %s: %s", e.Image, e.Why)
}

// For returns the rule for an image, a normalised name, or nil when there are no rules. The error is a *DeniedError.
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

// matches compares whole labels of the host, in which upper and lower case are the same, and whole elements of the path. What
// Docker Hub itself publishes, docker.io/library/nginx, goes by docker.io/nginx, too.
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

// CheckMatch says what is wrong with a pattern.
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
