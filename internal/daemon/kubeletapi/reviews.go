package kubeletapi

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"

	"monopod/node/apiserver/webhook"
	"monopod/node/secure"
)

// reviews authenticates and authorizes requests by the API server; without one they fail.
type reviews struct{ *webhook.Webhook }

// AuthenticateToken implements secure.Authenticator.
func (r reviews) AuthenticateToken(ctx context.Context, token string) (secure.User, bool, error) {
	who, ok, err := r.Authenticate(ctx, token)
	u := secure.User{Name: who.Username, UID: who.UID, Groups: who.Groups}
	for k, v := range who.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u, ok, err
}

// Authorize implements secure.Authorizer.
func (r reviews) Authorize(ctx context.Context, at secure.Attributes) (bool, error) {
	if r.Webhook == nil {
		return false, webhook.ErrNoServer
	}
	who := authenticationv1.UserInfo{Username: at.User.Name, UID: at.User.UID, Groups: at.User.Groups}
	for k, v := range at.User.Extra {
		if who.Extra == nil {
			who.Extra = map[string]authenticationv1.ExtraValue{}
		}
		who.Extra[k] = v
	}
	allowed, _, err := r.Webhook.Authorize(ctx, who, at.Verb, at.Subresource)
	return allowed, err
}
