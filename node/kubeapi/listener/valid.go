package listener

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/request"
)

// checkEvery is the interval in which the token of a watch is verified again.
const checkEvery = 30 * time.Second

// whileValid ends watches when their credentials end: a client certificate expires, or a token is no longer valid, because its pod has been
// removed for example. Clients then watch again. Connections to pods last, as in Kubernetes.
func whileValid(tokens access.TokenAuthenticator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.IsTrue(r.URL.Query(), "watch") || r.TLS == nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		var checks sync.WaitGroup
		defer checks.Wait()
		defer cancel()
		if certificates := r.TLS.PeerCertificates; len(certificates) > 0 && time.Now().Before(certificates[0].NotAfter) {
			var stop context.CancelFunc
			ctx, stop = context.WithDeadline(ctx, certificates[0].NotAfter)
			defer stop()
		} else if _, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " "); token != "" && tokens != nil {
			checks.Go(func() {
				defer cancel()
				waitInvalid(ctx, tokens, strings.TrimSpace(token))
			})
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// waitInvalid returns when a token is no longer valid, or ctx ends.
func waitInvalid(ctx context.Context, tokens access.TokenAuthenticator, token string) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, ok, err := tokens.AuthenticateToken(ctx, token); !ok || err != nil {
			return
		}
	}
}
