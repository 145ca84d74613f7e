// Package pause waits for a time or for the end of a context.
//
// It has no goroutines.
package pause

import (
	"context"
	"time"
)

// FarAway is a time that does not come, for timers that are set later.
const FarAway = 24 * time.Hour

// For waits for d or the end of ctx, and reports whether ctx is still alive.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
