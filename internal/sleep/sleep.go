// Package sleep waits in a way that a context ends. It must not be used to wait for something that can be awaited.
package sleep

import (
	"context"
	"time"
)

// For waits and says whether ctx is still alive.
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
