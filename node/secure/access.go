package secure

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/csv"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"monopod/internal/regular"
)

// User is the authenticated client of a request.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Names of users and groups in Kubernetes.
const (
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
)

// Authenticator verifies tokens, like an API server's TokenReview.
type Authenticator interface {
	// AuthenticateToken returns the user of a token; ok is false for an unknown token. An error means that the token cannot be verified at
	// present.
	AuthenticateToken(ctx context.Context, token string) (u User, ok bool, err error)
}

// Attributes describe a request as in a SubjectAccessReview: a verb on a subresource of this node.
type Attributes struct {
	User User
	// Verb is get, create, update, patch or delete.
	Verb string
	// Subresource is a subresource of nodes: metrics, stats, log, proxy, ...
	Subresource string
	Path        string
}

// Authorizer authorizes requests.
type Authorizer interface {
	// Authorize reports whether a request is allowed. An error means that this cannot be checked at present; the request is then refused.
	Authorize(ctx context.Context, a Attributes) (allowed bool, err error)
}

// Access authenticates and authorizes requests. A request with wrong credentials is refused, even where anonymous requests are allowed.
type Access struct {
	// ClientCA has the authorities for client certificates; nil means that none are accepted. The user is the common name, the groups are
	// the organizations.
	ClientCA *Authorities
	// Tokens verify bearer tokens, in this order.
	Tokens []Authenticator
	// Anonymous means that requests without credentials are made by system:anonymous.
	Anonymous bool
	// Authorizer decides. It must allow one of the subresources of a path. With nil, the handler authorizes.
	Authorizer Authorizer
}

// refusal is the answer to a refused request.
type refusal struct {
	code int
	text string
	// log is logged, but not sent to the client.
	log string
}

// userKey is the key of the user in the context of a request.
type userKey struct{}

// UserOf returns the user of an authorized request; ok is false where requests are not authorized.
func UserOf(ctx context.Context) (u User, ok bool) {
	u, ok = ctx.Value(userKey{}).(User)
	return u, ok
}

// check returns why a request is refused. If it is allowed, it returns nil, and the context of the request has the user.
func (a *Access) check(r *http.Request) *refusal {
	user, err := a.authenticate(r)
	if err != nil {
		return &refusal{http.StatusUnauthorized, "Unauthorized", err.Error()}
	}
	if a.Authorizer == nil {
		*r = *r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		return nil
	}
	subresources := Subresources(r.URL.Path)
	var errs []error
	for _, sub := range subresources {
		allowed, err := a.Authorizer.Authorize(r.Context(), Attributes{User: user, Verb: verbOf(r), Subresource: sub, Path: r.URL.Path})
		if allowed && err == nil {
			*r = *r.WithContext(context.WithValue(r.Context(), userKey{}, user))
			return nil
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return &refusal{http.StatusInternalServerError, "Authorization error", err.Error()}
	}
	text := fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Name, verbOf(r), subresources)
	return &refusal{http.StatusForbidden, text, text}
}

// authenticate returns the user of a request.
func (a *Access) authenticate(r *http.Request) (User, error) {
	var errs []error
	if a.ClientCA != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		user, err := a.ClientCA.user(r.TLS.PeerCertificates)
		if err == nil {
			return user.authenticated(), nil
		}
		errs = append(errs, err)
	}
	token, given := bearer(r)
	if given {
		for _, known := range a.Tokens {
			user, ok, err := known.AuthenticateToken(r.Context(), token)
			if ok && err == nil {
				return user.authenticated(), nil
			}
			errs = append(errs, err)
		}
		errs = append(errs, errors.New("unknown token"))
	}
	if len(errs) > 0 {
		return User{}, errors.Join(errs...)
	}
	if a.Anonymous {
		return User{Name: Anonymous, Groups: []string{GroupUnauthenticated}}, nil
	}
	return User{}, errors.New("no credentials")
}

func (u User) authenticated() User {
	if !slices.Contains(u.Groups, GroupAuthenticated) {
		u.Groups = append(slices.Clone(u.Groups), GroupAuthenticated)
	}
	return u
}

// bearer returns the token of a request; given reports whether there is an Authorization header at all.
func bearer(r *http.Request) (token string, given bool) {
	header := r.Header.Get("Authorization")
	kind, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(kind, "bearer") {
		return "", header != ""
	}
	return strings.TrimSpace(token), true
}

// verbOf returns the verb of a request. Paths that run or reach something in a pod are "create", even with GET, which a WebSocket needs: as
// in a kubelet, the right to read must not include them.
func verbOf(r *http.Request) string {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); first {
	case "exec", "attach", "run", "portForward":
		return "create"
	}
	return verb(r.Method)
}

// verb returns the name of a method in Kubernetes.
func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return strings.ToLower(method)
}

// Subresources returns the subresources of nodes that a path stands for, the most specific first, as in a kubelet.
func Subresources(path string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "stats":
		return []string{"stats"}
	case "metrics":
		return []string{"metrics"}
	case "logs":
		return []string{"log"}
	case "checkpoint":
		return []string{"checkpoint"}
	case "statusz":
		return []string{"statusz"}
	case "pods", "runningpods":
		return []string{"pods", "proxy"}
	case "healthz", "livez", "readyz":
		return []string{"healthz", "proxy"}
	case "configz", "flagz":
		return []string{"configz", "proxy"}
	}
	return []string{"proxy"}
}

// AlwaysAllow allows everything to authenticated users.
type AlwaysAllow struct{}

// Authorize implements Authorizer.
func (AlwaysAllow) Authorize(_ context.Context, a Attributes) (bool, error) {
	return slices.Contains(a.User.Groups, GroupAuthenticated), nil
}

// Rules lists what users and groups may do, by "user:<name>" or "group:<name>": subresources to get, as "metrics"; with a verb before a
// colon, as "create:proxy"; or "*" for all.
type Rules map[string][]string

// Authorize implements Authorizer.
func (r Rules) Authorize(_ context.Context, a Attributes) (bool, error) {
	if r.allow("user:"+a.User.Name, a) {
		return true, nil
	}
	return slices.ContainsFunc(a.User.Groups, func(g string) bool { return r.allow("group:"+g, a) }), nil
}

func (r Rules) allow(subject string, a Attributes) bool {
	return slices.ContainsFunc(r[subject], func(rule string) bool {
		verb, sub, ok := strings.Cut(rule, ":")
		if !ok {
			verb, sub = "get", rule
		}
		return rule == "*" || (verb == "*" || verb == a.Verb) && (sub == "*" || sub == a.Subresource)
	})
}

// Check returns an error for invalid rules.
func (r Rules) Check() error {
	verbs := []string{"get", "create", "update", "patch", "delete", "*"}
	subresources := []string{"*", "metrics", "stats", "log", "pods", "healthz", "configz", "checkpoint", "statusz", "proxy"}
	var errs []error
	for subject, rules := range r {
		kind, name, _ := strings.Cut(subject, ":")
		if (kind != "user" && kind != "group") || name == "" {
			errs = append(errs, fmt.Errorf("%q is neither user:<name> nor group:<name>", subject))
		}
		for _, rule := range rules {
			verb, sub, ok := strings.Cut(rule, ":")
			if !ok {
				verb, sub = "get", rule
			}
			if !slices.Contains(verbs, verb) || !slices.Contains(subresources, sub) {
				errs = append(errs, fmt.Errorf("%s: %q is not a subresource, as metrics or proxy, with or without a verb before it, as create:proxy", subject, rule))
			}
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Authorities verify client certificates; they are in a file of PEM certificates.
type Authorities struct {
	pool watched[*x509.CertPool]
	now  func() time.Time
}

// NewAuthorities returns the authorities in a file, which is read when a client presents a certificate.
func NewAuthorities(file string, log *slog.Logger) *Authorities {
	return &Authorities{now: time.Now, pool: watched[*x509.CertPool]{file: file, log: log, parse: parseAuthorities}}
}

func parseAuthorities(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("it has no certificate in PEM")
	}
	return pool, nil
}

// user returns whose certificate the first of a chain is.
func (a *Authorities) user(chain []*x509.Certificate) (User, error) {
	pool, err := a.pool.get()
	if pool == nil {
		return User{}, fmt.Errorf("client CAs: %w", err)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	leaf := chain[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: a.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return User{}, fmt.Errorf("client certificate: %w", err)
	}
	if leaf.Subject.CommonName == "" {
		return User{}, errors.New("client certificate: it has no common name")
	}
	return User{Name: leaf.Subject.CommonName, Groups: slices.Clone(leaf.Subject.Organization)}, nil
}

// TokenFile is an Authenticator of tokens in a file, as kube-apiserver's: lines of token,user,uid,"group1,group2".
type TokenFile struct {
	users watched[map[[sha256.Size]byte]User]
}

// NewTokenFile returns the tokens of a file, which is read when a client presents a token.
func NewTokenFile(file string, log *slog.Logger) *TokenFile {
	return &TokenFile{users: watched[map[[sha256.Size]byte]User]{file: file, log: log, parse: parseTokens}}
}

// CheckTokenFile reports why the tokens of a file are not accepted. The error contains no token.
func CheckTokenFile(file string) error { return checkFile(file, parseTokens) }

// CheckAuthorities reports why the authorities of a file are not accepted.
func CheckAuthorities(file string) error { return checkFile(file, parseAuthorities) }

func checkFile[T any](file string, parse func([]byte) (T, error)) error {
	data, err := regular.ReadFile(file, maxAccessFile)
	if err == nil {
		if _, err = parse(data); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	return err
}

// minToken is the minimum length of a token that cannot be guessed by brute force.
const minToken = 16

func parseTokens(data []byte) (map[[sha256.Size]byte]User, error) {
	r := csv.NewReader(strings.NewReader(string(data)))
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace = -1, '#', true
	records, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	users := map[[sha256.Size]byte]User{}
	for i, record := range records {
		switch {
		case len(record) < 2 || record[1] == "":
			return nil, fmt.Errorf("record %d is not token,user,uid,\"groups\"; all tokens of the file are ignored until it is corrected", i+1)
		case len(record[0]) < minToken:
			return nil, fmt.Errorf("record %d: the token of user %q has %d characters, fewer than %d; all tokens of the file are ignored until it is longer", i+1, record[1], len(record[0]), minToken)
		}
		u := User{Name: record[1]}
		if len(record) > 2 {
			u.UID = record[2]
		}
		if len(record) > 3 {
			u.Groups = strings.FieldsFunc(record[3], func(c rune) bool { return c == ',' || c == ' ' })
		}
		users[sha256.Sum256([]byte(record[0]))] = u // found by its hash: how long that takes tells nothing of the token
	}
	return users, nil
}

// AuthenticateToken implements Authenticator.
func (t *TokenFile) AuthenticateToken(_ context.Context, token string) (User, bool, error) {
	users, err := t.users.get()
	if users == nil {
		return User{}, false, fmt.Errorf("tokens: %w", err)
	}
	u, ok := users[sha256.Sum256([]byte(token))]
	return u, ok, nil
}
