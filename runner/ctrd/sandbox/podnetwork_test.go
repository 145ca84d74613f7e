package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOneNetworkSetupPerSandboxAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewSetups()
		release := make(chan struct{})
		n := 0
		f := func(context.Context) error { n++; <-release; return errors.New("failed") }
		first := a.start(t.Context(), "x", f)
		second := a.start(t.Context(), "x", f)
		if first != second {
			t.Error("two set-ups run at once")
		}
		close(release)
		if err := second.wait(t.Context()); err == nil || err.Error() != "failed" {
			t.Errorf("got %v", err)
		}
		third := a.start(t.Context(), "x", func(context.Context) error { n++; return nil })
		if err := third.wait(t.Context()); err != nil || n != 2 {
			t.Errorf("a failed set-up was not repeated: %v, %d runs", err, n)
		}
		a.Forget("x")
		if a.get("x") != nil {
			t.Error("not forgotten")
		}
		a.Wait(t.Context())
	})
}

func TestForgettingASetupCancelsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewSetups()
		n := a.start(t.Context(), "x", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		a.Forget("x")
		if !errors.Is(n.err, context.Canceled) {
			t.Errorf("got %v", n.err)
		}
	})
}
