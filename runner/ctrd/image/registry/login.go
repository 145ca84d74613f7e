package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Login is an entry of an image pull secret: the credentials for registries that match a pattern.
type Login struct {
	// Pattern is host[:port][/path]; each label of the host may have wildcards.
	Pattern               string
	User, Password, token string
}

// ParseSecret returns the logins of a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg; Secrets of other types
// have none. Errors do not contain its content.
func ParseSecret(s *corev1.Secret) ([]Login, error) {
	type entry struct {
		Username      string `json:"username"`
		Password      string `json:"password"`
		Auth          string `json:"auth"`
		IdentityToken string `json:"identitytoken"`
	}
	var entries map[string]entry
	var err error
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		var file struct {
			Auths map[string]entry `json:"auths"`
		}
		err = json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &file)
		entries = file.Auths
	case corev1.SecretTypeDockercfg:
		err = json.Unmarshal(s.Data[corev1.DockerConfigKey], &entries)
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s is not a docker configuration", s.Name)
	}
	var logins []Login
	for key, e := range entries {
		l := Login{Pattern: patternOf(key), User: e.Username, Password: e.Password, token: e.IdentityToken}
		if l.User == "" && e.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(strings.TrimRight(e.Auth, "\x00"))
			if err != nil {
				return nil, fmt.Errorf("secret %s: the auth of %s is not in base64", s.Name, l.Pattern)
			}
			l.User, l.Password, _ = strings.Cut(string(text), ":")
		}
		logins = append(logins, l)
	}
	sort.Slice(logins, func(i, j int) bool { return compareLogins(&logins[i], &logins[j]) < 0 })
	return logins, nil
}

// compareLogins sorts the more specific login first.
func compareLogins(a, b *Login) int {
	return cmp.Or(-cmp.Compare(len(a.Pattern), len(b.Pattern)), cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.User, b.User))
}

// patternOf removes scheme and API version from a key of a docker configuration.
func patternOf(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	host, rest, _ := strings.Cut(key, "/")
	rest = strings.Trim(rest, "/")
	if first, after, _ := strings.Cut(rest, "/"); first == "v1" || first == "v2" {
		rest = after
	}
	if rest == "" {
		return host
	}
	return host + "/" + rest
}

// matches reports whether the login is for an image, given by its normalised name.
func (l Login) matches(name string) bool {
	host, repository, _ := strings.Cut(name, "/")
	if host == "docker.io" && l.Pattern == "index.docker.io" {
		return true
	}
	wantHost, wantPath, _ := strings.Cut(l.Pattern, "/")
	return matchHost(wantHost, host) && strings.HasPrefix(repository, wantPath)
}

func matchHost(pattern, host string) bool {
	p, h := url.URL{Host: pattern}, url.URL{Host: host}
	patterns, labels := strings.Split(p.Hostname(), "."), strings.Split(h.Hostname(), ".")
	if p.Port() != h.Port() || len(patterns) != len(labels) {
		return false
	}
	for i := range patterns {
		if ok, err := path.Match(patterns[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

type loginsKey struct{}

// WithLogins returns a context whose pulls use these logins. AuthFile is used if none matches, or if none is accepted.
func WithLogins(ctx context.Context, logins []Login) context.Context {
	if len(logins) == 0 {
		return ctx
	}
	return context.WithValue(ctx, loginsKey{}, logins)
}

// SecretLogins returns the logins of a context.
func SecretLogins(ctx context.Context) []Login {
	logins, _ := ctx.Value(loginsKey{}).([]Login)
	return slices.Clip(logins)
}

// Candidates returns the logins for an image, the most specific first, then nil for AuthFile.
func Candidates(ctx context.Context, name string) []*Login {
	logins := SecretLogins(ctx)
	var all []*Login
	for i := range logins {
		if logins[i].matches(name) {
			all = append(all, &logins[i])
		}
	}
	slices.SortStableFunc(all, compareLogins)
	return append(all, nil)
}

// PullKey identifies a pull that callers may share: the image and the logins for it.
func PullKey(ctx context.Context, name string) string {
	sum := sha256.New()
	for _, l := range Candidates(ctx, name) {
		if l != nil {
			fmt.Fprintf(sum, "%q %q %q %q;", l.Pattern, l.User, l.Password, l.token)
		}
	}
	return name + " " + hex.EncodeToString(sum.Sum(nil))
}

// credentials returns user name and password, or only an identity token.
func (l *Login) credentials() (user, secret string) {
	if l.token != "" {
		return "", l.token
	}
	return l.User, l.Password
}
