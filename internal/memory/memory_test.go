package memory

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGarbageIsLimitedWithManyPods adds and removes pods.
func TestGarbageIsLimitedWithManyPods(t *testing.T) {
	var limits []int
	m := NewTrimmer()
	m.limit = func(percent int) { limits = append(limits, percent) }
	for _, pods := range []int{0, 1, manyPods - 1, manyPods, 10 * manyPods, manyPods, 3, 0} {
		m.Expect(pods, 0)
	}
	for _, objects := range []int{0, perPod*manyPods - 1, perPod * manyPods, 0} {
		m.Expect(0, objects)
	}
	if want := []int{littleGarbage, usualGarbage, littleGarbage, usualGarbage}; !slices.Equal(limits, want) {
		t.Errorf("%v, want %v", limits, want)
	}
}

// TestMemoryIsGivenBackOnceAfterMuchWork covers startup, and pod changes: many and few, fast and continuous.
func TestMemoryIsGivenBackOnceAfterMuchWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var released atomic.Int64
		m := NewTrimmer()
		m.Release = func() { released.Add(1) }
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		work := func(changes int, every time.Duration) {
			for range changes {
				m.PodChanged()
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
		after("a start that is not over yet", quietAtStart/2, 0)
		after("a start", 2*quietAtStart, 1)
		after("what comes after a start", settledAfter+2*quietFor, 2)
		work(muchWork-1, time.Millisecond)
		after("little work, but the last time was a moment ago", 2*quietFor, 2)
		after("little work", restFor, 3)
		after("nothing since then", time.Hour, 3)
		work(1, 0)
		after("little work after a long time", 2*quietFor, 4)
		work(muchWork, 0)
		after("much, but not over yet", quietFor/2, 4)
		after("much", 2*quietFor, 5)
		after("nothing since then", time.Hour, 5)
		work(10*muchWork, time.Millisecond)
		after("much again", 2*quietFor, 6)
		after("nothing since then", time.Hour, 6)
		work(int(2*busyFor/time.Second)+muchWork, time.Second)
		after("work without a pause for a minute and a half", 0, 8)
		m.Answered()
		after("an answer, but the last time was a moment ago", 0, 8)
		after("an answer", restFor+2*quietFor, 9)
		after("no answer since then", time.Hour, 9)
		m.Answered()
		after("an answer after a long time", 2*quietFor, 10)
		m.Touch()
		after("an input that was read", restFor+2*quietFor, 11)
		for range 5 * 4 { // somebody who asks every 15 seconds
			m.Answered()
			time.Sleep(restFor / 4)
		}
		after("an answer every few seconds, for five minutes", 2*quietFor, 15)
		stop()
		<-done
	})
}

// TestTheProgramIsForgottenAfterCollectionsAndChecks, and not more often than every few seconds.
func TestTheProgramIsForgottenAfterCollectionsAndChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		forgotten := 0
		m := NewTrimmer()
		m.Release, m.forget = func() {}, func() { forgotten++ }
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		for want, work := range []func(){func() { notify(m.mapped) }, m.Checked} {
			time.Sleep(time.Hour)
			work()
			time.Sleep(2 * quietFor)
			synctest.Wait()
			if forgotten != want+1 {
				t.Errorf("%d times after %d collections and checks", forgotten, want+1)
			}
		}
		for range 100 {
			notify(m.mapped)
			time.Sleep(time.Second)
		}
		time.Sleep(forgetEvery)
		synctest.Wait()
		if most := int(100*time.Second/forgetEvery) + 4; forgotten < 5 || forgotten > most {
			t.Errorf("%d times after collections for 100 seconds", forgotten)
		}
		now := forgotten
		time.Sleep(time.Hour)
		if forgotten != now {
			t.Errorf("%d times more while nothing is collected", forgotten-now)
		}
		stop()
		<-done
	})
}

func TestCollectionsAreAnnounced(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	collected := make(chan struct{}, 1)
	afterCollections(ctx, collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
	stop()
	runtime.GC()
	runtime.GC()
	select {
	case <-collected: // that of the time before
	default:
	}
}
