package listener

import (
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/codec"
)

// sameOrigin refuses requests that a browser sends for a page of another site: it adds the client certificate of its user by itself. Only
// those that change something, and upgrades to a WebSocket, whose answers the page could read, are dangerous. Requests with a token were
// made by a page that knows it. Other clients send neither of the headers, or that of this host.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		if r.Header.Get("Authorization") == "" && (!reads || r.Header.Get("Upgrade") != "") && foreign(r) {
			err := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			err.ErrStatus.Message = "cross-origin requests with a client certificate are refused; use a token"
			codec.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// libraryOrigin is what programs pass to golang.org/x/net/websocket, which insists on an origin: Kubernetes' own tests, for example. For a
// browser it is a page that this machine serves on port 80.
const libraryOrigin = "http://localhost"

// foreign reports whether a browser sends a request for a page of another origin.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" || origin == libraryOrigin && r.Header.Get("Upgrade") != "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}
