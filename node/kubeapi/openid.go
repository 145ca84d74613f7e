package kubeapi

import (
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/tokens"
)

// openID serves the documents with which others verify the tokens of service accounts; it returns false for other paths. Without an issuer or a
// listener, they are not found.
func (s *Server) openID(w http.ResponseWriter, r *http.Request) bool {
	media := "application/json"
	switch r.URL.Path {
	case tokens.ConfigurationPath:
	case tokens.KeySetPath:
		media = "application/jwk-set+json"
	default:
		return false
	}
	if s.cfg.Issuer == nil || s.cfg.URL == "" {
		s.fail(w, r, request.NotServed())
		return true
	}
	document, err := s.openIDDocument(r)
	if err != nil {
		s.fail(w, r, apierrors.NewInternalError(err))
		return true
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "public, max-age=3600") // as kube-apiserver with static keys
	_, _ = w.Write(document)                                // an error means that the client is gone
	return true
}

func (s *Server) openIDDocument(r *http.Request) ([]byte, error) {
	if r.URL.Path == tokens.KeySetPath {
		return s.cfg.Issuer.KeySet()
	}
	return s.cfg.Issuer.Configuration(reachedAt(r, s.cfg.URL))
}

// reachedAt returns the URL of this server at the address at which a client has reached it: pods reach it at another one than programs of
// the machine. Without TLS, which is the socket, it is other.
func reachedAt(r *http.Request, other string) string {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if r.TLS == nil || !ok || at.Zone != "" {
		return other
	}
	return "https://" + at.String()
}
