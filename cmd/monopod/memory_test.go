package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryIsGivenBackOnceAfterMuchWork has pods change, many and few, fast and without end.
func TestMemoryIsGivenBackOnceAfterMuchWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		released := 0
		m := newThrift()
		m.release = func() { released++ }
		done := make(chan struct{})
		go func() { m.run(ctx); close(done) }()
		work := func(changes int, every time.Duration) {
			for range changes {
				m.stir()
				time.Sleep(every)
			}
		}
		after := func(what string, wait time.Duration, want int) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if released != want {
				t.Errorf("%s: memory was given back %d times, not %d", what, released, want)
			}
		}
		work(muchWork-1, time.Millisecond)
		after("little work", time.Hour, 0)
		work(1, 0)
		after("much, but not over yet", quietFor/2, 0)
		after("much", 2*quietFor, 1)
		after("nothing since then", time.Hour, 1)
		work(10*muchWork, time.Millisecond)
		after("much again", 2*quietFor, 2)
		work(int(2*busyFor/time.Second)+muchWork, time.Second)
		after("work without a pause", 0, 3)
		stop()
		<-done
	})
}
