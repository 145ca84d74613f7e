package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/containerd/containerd/v2/core/remotes"
)

// ErrStalled ends a request to a registry that stopped sending data.
var ErrStalled = errors.New("no data from the registry for 5 minutes")

// Client reaches the registries of images, with the logins and within the limits of pulls.
type Client struct {
	// Misled is called when an image was got from its registry because the content of a mirror could not be used; nil: it is not reported.
	Misled func(image string, err *MirrorError)

	access Access
	limits limiter
}

// NewClient returns a Client. It does no I/O.
func NewClient(access Access, limits Limits) *Client {
	return &Client{access: access, limits: newLimiter(limits)}
}

// Begin waits until another pull may start. The caller must call done when the pull ends.
func (c *Client) Begin(ctx context.Context) (done func(), err error) { return c.limits.begin(ctx) }

// Try calls use with a resolver for each login of an image, the most specific first, until one succeeds. It stops at ErrStalled and at
// errors that final accepts: another login would not help. After wrong content from mirrors, use is called again without them. It returns the
// errors of all logins and of the credential providers.
func (c *Client) Try(ctx context.Context, name string, final func(error) bool, use func(context.Context, remotes.Resolver) error) error {
	logins, providerErr := c.access.Providers.Logins(ctx, name)
	ctx = WithLogins(ctx, append(SecretLogins(ctx), logins...))
	var errs []error
	for _, login := range Candidates(ctx, name) {
		m := &mirrors{}
		misled, err := m.try(ctx, final, func(ctx context.Context) error {
			return c.tryLogin(ctx, &session{name: name, login: login, mirrors: m}, use)
		})
		if err == nil && misled != nil && c.Misled != nil {
			c.Misled(name, misled)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
		if errors.Is(err, ErrStalled) || final != nil && final(err) {
			break
		}
	}
	return JoinDistinct(append(errs, providerErr)...)
}

// tryLogin uses the login of a session; nil: that of AuthFile.
func (c *Client) tryLogin(ctx context.Context, s *session, use func(context.Context, remotes.Resolver) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.access, s.logins = c.access, SecretLogins(ctx)
	s.wrap = func(next http.RoundTripper) http.RoundTripper {
		return &watchdog{next: c.limits.throttle(next), stalled: func() { cancel(ErrStalled) }}
	}
	defer s.close()
	err := use(ctx, s.resolver(ctx))
	if err != nil && errors.Is(context.Cause(ctx), ErrStalled) {
		return fmt.Errorf("%w: %w", ErrStalled, err)
	}
	return err
}

// JoinDistinct is errors.Join without errors that have the same text as an earlier one.
func JoinDistinct(errs ...error) error {
	seen := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})...)
}
