package ctrd

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/signals"
	"monopod/manifests"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	signals.Adopt() // what tests start must not inherit them
	goleak.VerifyTestMain(m, leakOptions()...)
}

func bareRuntime() *Runtime {
	r := &Runtime{log: slog.New(slog.DiscardHandler), slots: newSlots(2), index: newIndex(), watch: newWatchers(), adds: newAdds()}
	r.teardown = newTeardown(r)
	return r
}

func TestARemovalThatFailsIsReportedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRuntime()
		pod := &manifests.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}}
		r.index.putSandbox(&sandboxRecord{ID: "s", Pod: pod, Labels: sandboxLabels{Key: pod.Key(), UID: "u", State: "gone"}})
		ctx, cancel := context.WithCancel(t.Context())
		busy := errors.New("device or resource busy")
		tries := 0
		r.teardown.put("s", func(context.Context) error {
			if tries++; tries < 4 {
				return busy
			}
			r.index.deleteSandbox("s")
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- r.teardown.run(ctx) }()
		time.Sleep(2 * time.Second)
		if all := r.Removals(); len(all) != 1 || all[0].Pod != pod || all[0].UID != "u" || all[0].Failed != 2 || !errors.Is(all[0].Err, busy) || !all[0].Next.After(time.Now()) {
			t.Errorf("%+v", all)
		}
		time.Sleep(time.Minute)
		if all := r.Removals(); len(all) > 0 {
			t.Errorf("it is gone: %+v", all)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAFailedTeardownIsTriedAgainWithGrowingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRuntime()
		ctx, cancel := context.WithCancel(t.Context())
		var tries []time.Duration
		began := time.Now()
		r.teardown.put("x", func(context.Context) error {
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return errors.New("not yet")
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- r.teardown.run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		if len(tries) != len(want) {
			t.Fatalf("tried at %v, want %v", tries, want)
		}
		for i := range want {
			if tries[i] != want[i] {
				t.Errorf("tried at %v, want %v", tries, want)
			}
		}
		if n := r.teardown.pending(); n != 0 {
			t.Errorf("%d jobs left", n)
		}
	})
}

func TestOneStuckTeardownDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRuntime()
		ctx, cancel := context.WithCancel(t.Context())
		r.teardown.put("stuck", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		var n atomic.Int32
		for _, id := range []string{"a", "b", "c"} {
			r.teardown.put(id, func(context.Context) error { n.Add(1); return nil })
		}
		done := make(chan error, 1)
		go func() { done <- r.teardown.run(ctx) }()
		synctest.Wait()
		if n.Load() != 3 {
			t.Errorf("%d of 3 jobs done", n.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if r.teardown.pending() != 1 {
			t.Error("the stuck job is forgotten")
		}
	})
}

func TestTheSameJobIsQueuedOnce(t *testing.T) {
	r := bareRuntime()
	r.teardown.add("x")
	r.teardown.add("x")
	r.teardown.discard("x")
	if n := r.teardown.pending(); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestEventsBeforeTheFirstWatchAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRuntime()
		r.watch.notify(testKey)
		ctx, cancel := context.WithCancel(t.Context())
		var got []manifests.Key
		done := make(chan error, 1)
		go func() { done <- r.Watch(ctx, func(k manifests.Key) { got = append(got, k) }) }()
		synctest.Wait()
		r.watch.notify(testKey)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(got) != 2 || got[0] != (manifests.Key{}) || got[1] != testKey {
			t.Errorf("notified of %v", got)
		}
	})
}

func TestOneNetworkSetupPerSandboxAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdds()
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
		a.forget("x")
		if a.get("x") != nil {
			t.Error("not forgotten")
		}
		a.wait(t.Context())
	})
}

func TestForgettingASetupCancelsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdds()
		n := a.start(t.Context(), "x", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		a.forget("x")
		if !errors.Is(n.err, context.Canceled) {
			t.Errorf("got %v", n.err)
		}
	})
}

func TestKeyLockExcludesOneKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keyLock
		unlock := k.lock("a")
		k.lock("b")()
		got := false
		go func() {
			defer k.lock("a")()
			got = true
		}()
		synctest.Wait()
		if got {
			t.Error("lock was given twice")
		}
		unlock()
		synctest.Wait()
		if !got || len(k.held) != 0 {
			t.Errorf("got %v, %d keys left", got, len(k.held))
		}
	})
}

func TestMoreTeardownsThanSlotsDoNotKeepTheRuntimeFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRuntime()
		ctx, cancel := context.WithCancel(t.Context())
		var tries atomic.Int32
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			r.teardown.put(id, func(ctx context.Context) error { tries.Add(1); <-ctx.Done(); return ctx.Err() })
		}
		done := make(chan error, 1)
		go func() { done <- r.teardown.run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := tries.Load(); n > 5 {
			t.Errorf("%d tries of 5 jobs after the end", n)
		}
	})
}
