package pool_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// newParallelRig returns a rig that creates up to n containers of a pod concurrently. A creation takes 50 ms, a start 10 ms.
func newParallelRig(t *testing.T, n int) *rig {
	t.Helper()
	r := newRig(t)
	r.cfg.Options.Parallel = n
	r.fake.Delay = func(a runner.Action) time.Duration {
		switch a.Kind {
		case runner.CreateContainer:
			return 50 * time.Millisecond
		case runner.StartContainer:
			return 10 * time.Millisecond
		}
		return 0
	}
	return r
}

// times returns when the containers were created and started, relative to begin and sorted.
func (r *rig) times(begin time.Time) string {
	var all []string
	for _, e := range r.fake.Journal() {
		if e.Action.Kind == runner.CreateContainer || e.Action.Kind == runner.StartContainer {
			all = append(all, e.Action.Container+" "+e.At.Sub(begin).String())
		}
	}
	slices.Sort(all) // simultaneous actions have no order
	return strings.Join(all, ", ")
}

func TestContainersAreCreatedTogetherAndStartedInOrder(t *testing.T) {
	for _, c := range []struct {
		parallel int
		want     string
	}{
		{1, "a 50ms, a 60ms, b 110ms, b 120ms, c 170ms, c 180ms"},
		{2, "a 50ms, a 60ms, b 50ms, b 70ms, c 100ms, c 110ms"},
		{3, "a 50ms, a 60ms, b 50ms, b 70ms, c 50ms, c 80ms"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, begin := newParallelRig(t, c.parallel).start(), time.Now()
			r.update(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe), testContainer("c", runtimetest.ScriptServe)))
			r.pass(time.Second)
			if got := r.times(begin); got != c.want {
				t.Errorf("%d at a time: %s, want %s", c.parallel, got, c.want)
			}
			if got := r.began(); got != "a b c" {
				t.Errorf("%d at a time: started in the order %s", c.parallel, got)
			}
		})
	}
}

func TestContainersBehindSidecarsAreCreatedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := newParallelRig(t, 5).start(), time.Now()
		r.update(edited(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{testContainer("i", "after 1s"), testSidecar("s", runtimetest.ScriptServe), testSidecar("t", runtimetest.ScriptServe)}
		}))
		r.pass(3 * time.Second)
		want := "a 1.11s, a 1.14s, b 1.11s, b 1.15s, i 50ms, i 60ms, s 1.11s, s 1.12s, t 1.11s, t 1.13s"
		if got := r.times(begin); got != want {
			t.Errorf("created and started %s, want %s", got, want)
		}
		if got := r.began(); got != "i s t a b" {
			t.Errorf("started in the order %s", got)
		}
	})
}

func TestFailedCreationDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newParallelRig(t, 3)
		r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
			if a.Kind == runner.CreateContainer && a.Container == "a" {
				return errors.New("no room")
			}
			return nil
		}
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe), testContainer("c", runtimetest.ScriptServe)))
		r.pass(time.Second)
		if got := r.began(); got != "b c" {
			t.Errorf("started: %s", got)
		}
		if why := r.status("web").Why; !strings.Contains(why, "no room") {
			t.Errorf("why: %s", why)
		}
	})
}

func TestSlowImageDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := newParallelRig(t, 3), time.Now()
		delay := r.fake.Delay
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage && a.Container == "b" {
				return 5 * time.Second
			}
			return delay(a)
		}
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)))
		r.pass(10 * time.Second)
		if got, want := r.times(begin), "a 50ms, a 60ms, b 5.05s, b 5.06s"; got != want {
			t.Errorf("created and started %s, want %s", got, want)
		}
	})
}

func TestRunningCreationsAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newParallelRig(t, 3).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		r.pass(20 * time.Millisecond)
		r.update() // while both are being created
		r.pass(time.Minute)
		if st := r.fake.State(key("web")); st.Sandbox != nil || len(st.Containers) > 0 {
			t.Errorf("left over: %+v", st)
		}
		r.update(pod)
		r.pass(20 * time.Millisecond)
		r.stop() // a stopping agent completes running creations
		if n := len(r.fake.State(key("web")).Containers); n != 2 {
			t.Errorf("%d containers", n)
		}
	})
}

// envPod returns a pod with a variable from the ConfigMap "app".
func envPod() *manifests.Pod {
	return edited(testPod("web", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}}}
	})
}

// with updates the desired state to a pod and the ConfigMap "app".
func (r *rig) with(content string, pod *manifests.Pod) {
	r.pool.Update(model.Desired{Pods: []*manifests.Pod{pod}, Objects: appMap(content), Reported: everySource()})
	r.settle()
}

func TestCreatedContainerFollowsEdits(t *testing.T) {
	for what, c := range map[string]struct {
		pod       *manifests.Pod
		meanwhile func(*rig, *manifests.Pod)
		want      string
	}{
		"nothing changes":    {envPod(), func(*rig, *manifests.Pod) {}, "a"},
		"the ConfigMap does": {envPod(), func(r *rig, p *manifests.Pod) { r.with("new", p) }, "a a"},
		"the agent restarts": {envPod(), func(r *rig, p *manifests.Pod) { r.restart(); r.with("old", p) }, "a a"},
		"of no consequence":  {testPod("web", testContainer("a", runtimetest.ScriptServe)), func(r *rig, p *manifests.Pod) { r.restart(); r.with("new", p) }, "a"},
		"the labels it shows": {envPod(), func(r *rig, p *manifests.Pod) {
			r.with("old", edited(p, func(o *corev1.Pod) { o.Labels = map[string]string{"x": "y"} }))
		}, "a a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			var online atomic.Bool
			r.fake.NetworkFail = func(manifests.Key) error {
				if !online.Load() {
					return errors.New("no bridge")
				}
				return nil
			}
			r.start()
			r.with("old", c.pod)
			if st := r.fake.State(key("web")); len(st.Containers) != 1 || st.Containers[0].State != runner.ContainerCreated {
				t.Fatalf("%s: it should wait for the network: %+v", what, st.Containers)
			}
			c.meanwhile(r, c.pod)
			online.Store(true)
			r.pass(10 * time.Minute)
			if got := r.those(runner.CreateContainer); got != c.want {
				t.Errorf("%s: created %s, want %s", what, got, c.want)
			}
			st := r.fake.State(key("web"))
			if len(st.Containers) != 1 || st.Containers[0].State != runner.ContainerRunning || st.Containers[0].RestartCount != 0 {
				t.Errorf("%s: %+v", what, st.Containers)
			}
		})
	}
}
