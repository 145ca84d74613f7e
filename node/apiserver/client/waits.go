package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// errAgain ends a session so that the next one begins with what the files say then.
var errAgain = errors.New("re-reading the kubeconfig")

// Fatal reports whether an error is about the credentials or the server itself: a new session may do better.
func Fatal(err error) error {
	if isUnauthorized(err) || isCertificate(err) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil
}

// Waits are those after failures: each twice the one before, with a random part so that a whole fleet does not come at once.
type Waits struct {
	First, Last, now time.Duration
	Said             string
}

// Next returns how long to wait now.
func (w *Waits) Next() time.Duration {
	w.now = min(max(2*w.now, w.First), w.Last)
	return w.now/2 + rand.N(w.now/2+1)
}

// Reset is after a success.
func (w *Waits) Reset() { w.now, w.Said = 0, "" }

// Sooner has the next waits be short again.
func (w *Waits) Sooner() { w.now = 0 }

// News reports whether an error differs from the one before.
func (w *Waits) News(err error) bool {
	text := Plain(err)
	fresh := text != w.Said
	w.Said = text
	return fresh
}

// Pause waits for d, for a value of wake, which may be nil, or for the end of ctx.
func Pause(ctx context.Context, d time.Duration, wake <-chan struct{}) { Wait(ctx, d, wake, nil, nil) }

// Wait is pause with three to wake it.
func Wait(ctx context.Context, d time.Duration, wake, other, third <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-wake:
	case <-other:
	case <-third:
	}
}

// NewWaits returns waits from first to last.
func NewWaits(first, last time.Duration) *Waits { return &Waits{First: first, Last: last} }
