// Package webhook authenticates tokens and authorizes requests to this node by a Kubernetes API server.
//
// It owns a bounded cache of the answers. It must not decide on its own: without an answer, access is denied. It starts no goroutines.
package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/node/apiserver/client"
)

// How long answers count, as with a kubelet; errors are never kept.
const (
	tokenTTL      = 2 * time.Minute
	allowedTTL    = 5 * time.Minute
	refusedTTL    = 30 * time.Second
	maxRemembered = 1000
	// maxRememberedAnswer is how long an answer may be to be remembered, maxRememberedSize how long all are together, in bytes.
	maxRememberedAnswer = 64 << 10
	maxRememberedSize   = 1 << 20
)

// ErrNoServer means that no API server can be asked now.
var ErrNoServer = errors.New("the API server does not respond")

// Webhook authenticates tokens and authorizes requests to this node by the API server.
type Webhook struct {
	// node is the name of the Node.
	node   string
	client func() *client.Client
	now    func() time.Time

	mu     sync.Mutex
	tokens memory[*authenticationv1.UserInfo]
	// rights are by the hash of all that is asked for: some authorizers look at what is extra of a user.
	rights memory[verdict]
}

type verdict struct {
	allowed bool
	reason  string
}

// remembered is an answer, how long it is in bytes, and when it ends to count.
type remembered[T any] struct {
	answer T
	size   int
	end    time.Time
}

// memory has answers by the hash of what was asked.
type memory[T any] struct {
	all map[[sha256.Size]byte]remembered[T]
	// size is that of all of them.
	size int
}

// keep caches an answer, unless it is too long. A full cache is emptied: only callers with credentials can fill it.
func (m *memory[T]) keep(key [sha256.Size]byte, r remembered[T]) {
	m.size -= m.all[key].size
	delete(m.all, key)
	if r.size > maxRememberedAnswer {
		return
	}
	if m.all == nil || len(m.all) >= maxRemembered || m.size+r.size > maxRememberedSize {
		m.all, m.size = map[[sha256.Size]byte]remembered[T]{}, 0
	}
	m.all[key] = r
	m.size += r.size
}

// New returns a Webhook of a Node that asks the server of the client; a nil client: there is none now.
func New(node string, client func() *client.Client) *Webhook {
	return &Webhook{node: node, client: client, now: time.Now}
}

// Authenticate says whose token it is. ok is false when the server does not know it.
func (w *Webhook) Authenticate(ctx context.Context, token string) (who authenticationv1.UserInfo, ok bool, err error) {
	key := sha256.Sum256([]byte(token)) // no token is kept
	w.mu.Lock()
	known, had := w.tokens.all[key]
	w.mu.Unlock()
	if !had || w.now().After(known.end) {
		review := authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}, Spec: authenticationv1.TokenReviewSpec{Token: token},
		}
		if err := w.ask(ctx, client.AuthenticationAPI, "tokenreviews", &review); err != nil {
			return who, false, err
		}
		if why := review.Status.Error; why != "" && !review.Status.Authenticated {
			return who, false, fmt.Errorf("the API server cannot authenticate the token: %s", client.Clip(why))
		}
		known = remembered[*authenticationv1.UserInfo]{end: w.now().Add(tokenTTL)}
		if review.Status.Authenticated {
			user := review.Status.User // without what else the server has answered, and the token
			known.answer, known.size = &user, sizeOf(&user)
		}
		w.mu.Lock()
		w.tokens.keep(key, known)
		w.mu.Unlock()
	}
	if known.answer == nil {
		return who, false, nil
	}
	return *known.answer, true, nil
}

// Authorize reports whether a user may access a subresource of this node, such as proxy, log or stats.
func (w *Webhook) Authorize(ctx context.Context, who authenticationv1.UserInfo, verb, subresource string) (allowed bool, reason string, err error) {
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra(who.Extra),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Version: "v1", Resource: "nodes", Subresource: subresource, Verb: verb, Name: w.node},
		},
	}
	spec, err := json.Marshal(review.Spec)
	if err != nil {
		return false, "", err
	}
	key := sha256.Sum256(spec)
	w.mu.Lock()
	known, had := w.rights.all[key]
	w.mu.Unlock()
	if had && !w.now().After(known.end) {
		return known.answer.allowed, known.answer.reason, nil
	}
	if err := w.ask(ctx, client.AuthorizationAPI, "subjectaccessreviews", &review); err != nil {
		return false, "", err
	}
	v := verdict{review.Status.Allowed && !review.Status.Denied, client.Clip(review.Status.Reason)}
	life := refusedTTL
	if v.allowed {
		life = allowedTTL
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rights.keep(key, remembered[verdict]{v, len(v.reason), w.now().Add(life)})
	return v.allowed, v.reason, nil
}

func extra(all map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	out := make(map[string]authorizationv1.ExtraValue, len(all))
	for k, v := range all {
		out[k] = authorizationv1.ExtraValue(v)
	}
	return out
}

// ask sends a review, which gets the answer.
func (w *Webhook) ask(ctx context.Context, api, resource string, review runtime.Object) error {
	c := w.client()
	if c == nil {
		return ErrNoServer
	}
	return c.Do(ctx, client.Request{Method: http.MethodPost, API: api, Resource: resource, Body: review, Into: review})
}

// sizeOf is about how much memory is kept with a user.
func sizeOf(who *authenticationv1.UserInfo) int {
	const each = 16 // for the string itself
	n := len(who.Username) + len(who.UID)
	for _, g := range who.Groups {
		n += each + len(g)
	}
	for key, values := range who.Extra {
		n += 3*each + len(key)
		for _, v := range values {
			n += each + len(v)
		}
	}
	return n
}
