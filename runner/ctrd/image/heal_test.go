package image

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/images"
)

func TestTheBackgroundDoesNotRestForAnImageThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealer(nil, Doubt{})
		rec := images.Image{Name: "i"}
		rec.Target.Digest = "sha256:i"
		key := rec.Target.Digest.String()
		done := make(chan struct{})
		h.busy[key] = done // as if the background were at it
		pauses := func(key string) time.Duration {
			rest := h.pace(t.Context(), key)
			time.Sleep(restAfter)
			began := time.Now()
			if err := rest(); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if got := pauses(key); got != 2*restAfter {
			t.Errorf("nobody waits: it rests for %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { waits <- h.image(ctx, rec, ctx.Err) }()
		synctest.Wait()
		if got := pauses(key); got != 0 {
			t.Errorf("a container waits: it rests for %s", got)
		}
		if got := pauses("sha256:other"); got != 2*restAfter {
			t.Errorf("a container waits for another image: it rests for %s", got)
		}
		cancel()
		if err := <-waits; err == nil {
			t.Error("it was not waited for")
		}
		if got := pauses(key); got != 2*restAfter {
			t.Errorf("nobody waits any more: it rests for %s", got)
		}
	})
}

func TestAPanicDoesNotMakeAnImageSound(t *testing.T) {
	h := newHealer(nil, Doubt{OnSound: func(string) { t.Error("it counts as sound") }})
	rec := images.Image{Name: "i"}
	rec.Target.Digest = "sha256:i"
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic: nothing was tried") // there is no containerd
			}
		}()
		_ = h.image(t.Context(), rec, func() error { return nil })
	}()
	if h.sound[rec.Target.Digest.String()] || len(h.busy) > 0 {
		t.Errorf("sound %v, busy %v", h.sound, h.busy)
	}
}
