package main

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGarbageIsLimitedWithManyPods has pods come and go.
func TestGarbageIsLimitedWithManyPods(t *testing.T) {
	var limits []int
	m := newThrift()
	m.limit = func(percent int) { limits = append(limits, percent) }
	for _, pods := range []int{0, 1, manyPods - 1, manyPods, 10 * manyPods, manyPods, 3, 0} {
		m.expect(pods)
	}
	if want := []int{littleGarbage, usualGarbage}; !slices.Equal(limits, want) {
		t.Errorf("%v, want %v", limits, want)
	}
}

// TestMemoryIsGivenBackOnceAfterMuchWork starts, and has pods change, many and few, fast and without end.
func TestMemoryIsGivenBackOnceAfterMuchWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var released atomic.Int64
		m := newThrift()
		m.release = func() { released.Add(1) }
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
			if got := int(released.Load()); got != want {
				t.Errorf("%s: memory was given back %d times, not %d", what, got, want)
			}
		}
		after("a start that is not over yet", quietFor/2, 0)
		after("a start", 2*quietFor, 1)
		work(muchWork-1, time.Millisecond)
		after("little work", time.Hour, 1)
		work(1, 0)
		after("much, but not over yet", quietFor/2, 1)
		after("much", 2*quietFor, 2)
		after("nothing since then", time.Hour, 2)
		work(10*muchWork, time.Millisecond)
		after("much again", 2*quietFor, 3)
		work(int(2*busyFor/time.Second)+muchWork, time.Second)
		after("work without a pause", 0, 4)
		stop()
		<-done
	})
}
