// Package listener serves the Kubernetes API over TCP: TLS with the API's own CA, client certificates and bearer tokens, limits on
// connections and requests. It puts the user into the context of each request.
//
// It must not authorize: handlers use access.Policy.
//
// Goroutines: those of node/secure, and one for each watch with a token.
package listener

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/request"
	"monopod/node/localapi"
	"monopod/node/secure"
)

// DefaultMaxConnections is the default maximum number of open connections; each watch needs one.
const DefaultMaxConnections = 256

// Config configures the listener.
type Config struct {
	// Address is the listen address, as host:port.
	Address string
	// Listener already listens on Address; if nil, the server opens its own.
	Listener net.Listener
	// Early allows listening before any interface has the address.
	Early bool
	// MaxConnections is the maximum number of open connections; 0 means DefaultMaxConnections.
	MaxConnections int
	Authority      *authority.Authority
	// Tokens verifies bearer tokens; nil accepts none.
	Tokens access.TokenAuthenticator
	// Anonymous lets requests without credentials reach Handler, as access.Anonymous.
	Anonymous bool
	// Handler serves requests; access.UserOf returns their user.
	Handler http.Handler
	// LongRunning reports requests without a time limit, such as watches; nil means LongRunning of this package.
	LongRunning func(*http.Request) bool
	Log         *slog.Logger
}

// New returns a server; call Run to serve. The authority is created if missing.
func New(cfg Config) (*secure.Server, error) {
	ca, err := cfg.Authority.CAFile()
	if err != nil {
		return nil, err
	}
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = DefaultMaxConnections
	}
	if cfg.LongRunning == nil {
		cfg.LongRunning = LongRunning
	}
	authentication := &secure.Access{ClientCA: secure.NewAuthorities(ca, cfg.Log), Anonymous: cfg.Anonymous}
	if cfg.Tokens != nil {
		authentication.Tokens = []secure.Authenticator{tokens{cfg.Tokens}}
	}
	return secure.NewServer(secure.Config{
		Address: cfg.Address, Listener: cfg.Listener, Early: cfg.Early, Cert: secure.Maintained(cfg.Authority.ServerFile(), cfg.Authority.EnsureServer, cfg.Log),
		Access: authentication, Handler: sameOrigin(WithUser(whileValid(cfg.Tokens, cfg.Handler))), Streams: cfg.LongRunning,
		MaxConnections: cfg.MaxConnections, Local: true, MaxBody: codec.MaxBody + 1, Refuse: refuse, Log: cfg.Log,
	}), nil
}

// LongRunning reports whether a request has no time limit: watches, and connections to pods.
func LongRunning(r *http.Request) bool {
	switch q := r.URL.Query(); {
	case request.IsTrue(q, "watch"), request.IsTrue(q, "follow"):
		return true
	case r.Header.Get("Upgrade") != "":
		return true
	}
	words := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if strings.HasPrefix(r.URL.Path, localapi.Base+"/") {
		last := words[len(words)-1] // trees of files, and the progress of pulls
		return len(words) > 5 && (last == "files" || last == "pulls")
	}
	at := 4 // /api/v1/RESOURCE/NAME/SUBRESOURCE
	if len(words) > 2 && words[2] == "namespaces" {
		at = 6 // /api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
	}
	if words[0] != "api" || len(words) <= at {
		return false
	}
	return slices.Contains([]string{"attach", "exec", "log", "portforward", "proxy"}, words[at])
}

// WithUser puts the user that node/secure has authenticated into the context. It rejects impersonation, which this API does not support: a
// request must not run with the permissions of a different user than the client expects.
func WithUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Impersonation(r); err != nil {
			codec.Fail(w, r, err)
			return
		}
		u, ok := secure.UserOf(r.Context())
		if !ok { // cannot happen with New
			codec.Fail(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), access.User(u))))
	})
}

// Impersonation returns the error for a request in the name of another user.
func Impersonation(r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			err := apierrors.NewUnauthorized("")
			err.ErrStatus.Code, err.ErrStatus.Reason = http.StatusForbidden, "Forbidden"
			err.ErrStatus.Message = fmt.Sprintf("header %s: monopod does not support impersonation; use the credentials of that user (`monopod kubeconfig --user`)", name)
			return err
		}
	}
	return nil
}

// refuse rejects a request without valid credentials.
func refuse(w http.ResponseWriter, r *http.Request, _ int, text string) {
	codec.Fail(w, r, apierrors.NewUnauthorized(text))
}

// tokens adapts access.Tokens to node/secure.
type tokens struct{ of access.TokenAuthenticator }

// AuthenticateToken implements secure.Authenticator.
func (t tokens) AuthenticateToken(ctx context.Context, token string) (secure.User, bool, error) {
	u, ok, err := t.of.AuthenticateToken(ctx, token)
	return secure.User(u), ok, err
}

// TokenFile returns the tokens of a file in the format of kube-apiserver.
func TokenFile(file string, log *slog.Logger) access.TokenAuthenticator {
	return tokenFile{secure.NewTokenFile(file, log)}
}

type tokenFile struct{ file *secure.TokenFile }

// AuthenticateToken implements access.Tokens.
func (t tokenFile) AuthenticateToken(ctx context.Context, token string) (access.User, bool, error) {
	u, ok, err := t.file.AuthenticateToken(ctx, token)
	return access.User(u), ok, err
}
