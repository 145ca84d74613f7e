package containers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/manifests"
	"monopod/runner"
)

// pullingRuntime pulls images for an hour unless they have been imported.
type pullingRuntime struct {
	daemontest.FakeRuntime
	imported atomic.Bool
	applied  int
}

func (r *pullingRuntime) Apply(ctx context.Context, _ manifests.Key, pod *manifests.Pod, a runner.Action) error {
	r.applied++
	if r.imported.Load() {
		return nil
	}
	if a.Kind == runner.EnsureImage && pod.Object.Spec.Containers[0].ImagePullPolicy == corev1.PullNever {
		return errors.New("not present")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Hour):
		return errors.New("no such host")
	}
}

func pulledPod() *manifests.Pod {
	return &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", ImagePullPolicy: corev1.PullIfNotPresent}}}}}
}

func TestPullsWaitForImageArchivesNotForTheNetwork(t *testing.T) {
	apply := func(t *testing.T, p Preloading, kind runner.ActionKind) (time.Duration, error) {
		t.Helper()
		start := time.Now()
		err := p.Apply(t.Context(), manifests.Key{}, pulledPod(), runner.Action{Kind: kind, Container: "c"})
		return time.Since(start), err
	}
	t.Run("the image comes with an archive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &pullingRuntime{}
			ctx, done := context.WithCancel(t.Context())
			go func() { time.Sleep(time.Minute); rt.imported.Store(true); done() }()
			if took, err := apply(t, Preloading{rt, ctx}, runner.EnsureImage); err != nil || took != time.Minute || rt.applied != 2 {
				t.Errorf("%v after %v, %d attempts", err, took, rt.applied)
			}
		})
	})
	t.Run("the image is there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &pullingRuntime{}
			rt.imported.Store(true)
			if took, err := apply(t, Preloading{rt, t.Context()}, runner.EnsureImage); err != nil || took != 0 || rt.applied != 1 {
				t.Errorf("%v after %v, %d attempts", err, took, rt.applied)
			}
		})
	})
	t.Run("it is in no archive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &pullingRuntime{}
			ctx, done := context.WithCancel(t.Context())
			go func() { time.Sleep(time.Minute); done() }()
			if took, err := apply(t, Preloading{rt, ctx}, runner.EnsureImage); err == nil || took != time.Hour+time.Minute || rt.applied != 2 {
				t.Errorf("%v after %v, %d attempts", err, took, rt.applied)
			}
		})
	})
	t.Run("other actions and later pulls pass", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &pullingRuntime{}
			if took, err := apply(t, Preloading{rt, t.Context()}, runner.StartContainer); err == nil || took != time.Hour || rt.applied != 1 {
				t.Errorf("%v after %v, %d attempts", err, took, rt.applied)
			}
			over, done := context.WithCancel(t.Context())
			done()
			if took, err := apply(t, Preloading{rt, over}, runner.EnsureImage); err == nil || took != time.Hour || rt.applied != 2 {
				t.Errorf("%v after %v, %d attempts", err, took, rt.applied)
			}
		})
	})
	t.Run("the daemon stops meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &pullingRuntime{}
			ctx, stop := context.WithCancel(t.Context())
			go func() { time.Sleep(time.Second); stop() }()
			err := Preloading{rt, context.WithoutCancel(ctx)}.Apply(ctx, manifests.Key{}, pulledPod(), runner.Action{Kind: runner.EnsureImage, Container: "c"})
			if !errors.Is(err, context.Canceled) || rt.applied != 1 {
				t.Errorf("%v, %d attempts", err, rt.applied)
			}
		})
	})
}
