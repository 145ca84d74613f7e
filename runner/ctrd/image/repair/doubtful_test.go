package repair

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/images"

	"monopod/runner/ctrd/image/local"
)

func TestBackgroundCheckDoesNotSleepWhileAContainerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubtful(&Config{Doubt: &Doubt{}})
		rec := images.Image{Name: "i"}
		rec.Target.Digest = "sha256:i"
		key := rec.Target.Digest.String()
		done := make(chan struct{})
		d.checking[key] = done // as if the background checked it
		pauses := func(key string) time.Duration {
			rest := d.pacer(t.Context(), key)
			time.Sleep(backgroundSlice)
			began := time.Now()
			if err := rest(); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if got := pauses(key); got != 2*backgroundSlice {
			t.Errorf("no container waits: it slept for %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { waits <- d.image(ctx, rec, ctx.Err) }()
		synctest.Wait()
		if got := pauses(key); got != 0 {
			t.Errorf("a container waits: it slept for %s", got)
		}
		if got := pauses("sha256:other"); got != 2*backgroundSlice {
			t.Errorf("a container waits for another image: it slept for %s", got)
		}
		cancel()
		if err := <-waits; err == nil {
			t.Error("await did not wait")
		}
		if got := pauses(key); got != 2*backgroundSlice {
			t.Errorf("no container waits any longer: it slept for %s", got)
		}
	})
}

func TestPanicDoesNotMarkAnImageSound(t *testing.T) {
	d := newDoubtful(&Config{Local: local.New(local.Config{}), Doubt: &Doubt{OnSound: func(string) { t.Error("it counts as sound") }}})
	rec := images.Image{Name: "i"}
	rec.Target.Digest = "sha256:i"
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic: it did not reach containerd")
			}
		}()
		_ = d.image(t.Context(), rec, func() error { return nil })
	}()
	if d.sound[rec.Target.Digest.String()] || len(d.checking) > 0 {
		t.Errorf("sound %v, busy %v", d.sound, d.checking)
	}
}
