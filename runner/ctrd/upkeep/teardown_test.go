package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/taskwatch"
)

// bareRemoval runs only the jobs that tests queue.
func bareRemoval() *Remover {
	log := slog.New(slog.DiscardHandler)
	return &Remover{Index: record.NewIndex(), Watch: taskwatch.New(), Log: log, Teardown: NewQueue(log, 2, nil)}
}

func TestARemovalThatFailsIsReportedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRemoval()
		pod := &manifests.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}}
		r.Index.PutSandbox(&record.Sandbox{ID: "s", Pod: pod, Meta: record.SandboxMeta{Key: pod.Key(), UID: "u", State: "gone"}})
		ctx, cancel := context.WithCancel(t.Context())
		busy := errors.New("device or resource busy")
		tries := 0
		r.Teardown.put("s", func(context.Context) error {
			if tries++; tries < 4 {
				return busy
			}
			r.Index.DeleteSandbox("s")
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- r.Teardown.Run(ctx) }()
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
		r := bareRemoval()
		ctx, cancel := context.WithCancel(t.Context())
		var tries []time.Duration
		began := time.Now()
		r.Teardown.put("x", func(context.Context) error {
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return errors.New("not yet")
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- r.Teardown.Run(ctx) }()
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
		if n := r.Teardown.Pending(); n != 0 {
			t.Errorf("%d jobs left", n)
		}
	})
}

func TestOneStuckTeardownDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRemoval()
		ctx, cancel := context.WithCancel(t.Context())
		r.Teardown.put("stuck", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		var n atomic.Int32
		for _, id := range []string{"a", "b", "c"} {
			r.Teardown.put(id, func(context.Context) error { n.Add(1); return nil })
		}
		done := make(chan error, 1)
		go func() { done <- r.Teardown.Run(ctx) }()
		synctest.Wait()
		if n.Load() != 3 {
			t.Errorf("%d of 3 jobs done", n.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if r.Teardown.Pending() != 1 {
			t.Error("the stuck job is forgotten")
		}
	})
}

func TestTheSameJobIsQueuedOnce(t *testing.T) {
	r := bareRemoval()
	r.GiveUp("x")
	r.GiveUp("x")
	r.Discard("x")
	if n := r.Teardown.Pending(); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestMoreTeardownsThanSlotsDoNotKeepTheRuntimeFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bareRemoval()
		ctx, cancel := context.WithCancel(t.Context())
		var tries atomic.Int32
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			r.Teardown.put(id, func(ctx context.Context) error { tries.Add(1); <-ctx.Done(); return ctx.Err() })
		}
		done := make(chan error, 1)
		go func() { done <- r.Teardown.Run(ctx) }()
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
