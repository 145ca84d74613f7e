package pool_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// counted counts the calls of a runtime, by pod.
type counted struct {
	runner.Runtime
	mu             sync.Mutex
	looks, applied map[manifests.Key]int
	lists          int
}

func count(rt runner.Runtime) *counted {
	c := &counted{Runtime: rt}
	c.forget()
	return c
}

func (c *counted) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks, c.applied, c.lists = map[manifests.Key]int{}, map[manifests.Key]int{}, 0
}

// totals returns the number of pods concerned, and of calls.
func (c *counted) totals() (pods, looks, applied, lists int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.looks)
	maps.Copy(all, c.applied)
	for key := range all {
		looks, applied = looks+c.looks[key], applied+c.applied[key]
	}
	return len(all), looks, applied, c.lists
}

// List implements runner.Runtime.
func (c *counted) List(ctx context.Context) ([]manifests.Key, error) {
	c.mu.Lock()
	c.lists++
	c.mu.Unlock()
	return c.Runtime.List(ctx)
}

// Observe implements runner.Runtime.
func (c *counted) Observe(ctx context.Context, key manifests.Key) (runner.PodState, error) {
	c.mu.Lock()
	c.looks[key]++
	c.mu.Unlock()
	return c.Runtime.Observe(ctx, key)
}

// Apply implements runner.Runtime.
func (c *counted) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	c.mu.Lock()
	c.applied[key]++
	c.mu.Unlock()
	return c.Runtime.Apply(ctx, key, pod, a)
}

// scaleRig returns a pool on which n pods run, with one host port each if ports is set.
func scaleRig(t *testing.T, n int, ports bool) (*rig, *counted, []*manifests.Pod) {
	t.Helper()
	r := newRig(t)
	c := count(r.fake)
	r.runtime = c
	r.start()
	pods := servers(n)
	for i, p := range pods {
		if ports {
			p.Object.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(1000 + i), Protocol: corev1.ProtocolTCP}}
		}
	}
	r.update(pods...)
	for _, s := range r.pool.Pods() {
		if s.Pod.Status.Phase != corev1.PodRunning {
			t.Fatalf("%s is %s: %s", s.Key(), s.Pod.Status.Phase, s.Why)
		}
	}
	return r, c, pods
}

// The cost of a pod must not depend on the number of other pods.
func TestRuntimeCallsOfOnePodDoNotGrowWithOtherPods(t *testing.T) {
	for _, ports := range []bool{false, true} {
		t.Run(fmt.Sprintf("host ports %t", ports), func(t *testing.T) {
			perPod := map[int]string{}
			for _, n := range []int{10, 300} {
				synctest.Test(t, func(t *testing.T) {
					_, c, _ := scaleRig(t, n, ports)
					pods, looks, applied, lists := c.totals()
					if pods != n || applied != 4*n {
						t.Errorf("%d pods, %d actions for %d", pods, applied, n)
					}
					if looks > 5*n || lists > 3 {
						t.Errorf("%d looks and %d lists for %d pods", looks, lists, n)
					}
					perPod[n] = fmt.Sprintf("%.1f looks", float64(looks)/float64(n))
				})
			}
			t.Logf("%v", perPod)
		})
	}
}

func TestEditOrExitOfOnePodDoesNotObserveOthers(t *testing.T) {
	for _, ports := range []bool{false, true} {
		t.Run(fmt.Sprintf("host ports %t", ports), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c, pods := scaleRig(t, 100, ports)
				c.forget()
				r.update(pods...)
				if asked, _, _, _ := c.totals(); asked != 0 {
					t.Errorf("the same again: %d pods were looked at", asked)
				}
				edited := &manifests.Pod{Object: pods[7].Object.DeepCopy(), Origin: pods[7].Origin}
				edited.Object.Spec.Containers[0].Image = "example.com/app:2"
				pods[7] = edited
				r.update(pods...)
				if asked, looks, _, _ := c.totals(); asked != 1 || looks == 0 || looks > 8 {
					t.Errorf("an edit: %d pods were looked at %d times", asked, looks)
				}
				c.forget()
				if err := r.fake.Exit(pods[70].Key(), "a", 1); err != nil {
					t.Fatal(err)
				}
				r.settle()
				if asked, looks, _, _ := c.totals(); asked != 1 || looks == 0 || looks > 8 {
					t.Errorf("an exit: %d pods were looked at %d times", asked, looks)
				}
			})
		})
	}
}

func TestOneNewPodAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, pods := scaleRig(t, 100, true)
		c.forget()
		r.update(append(pods, testPod("another", testContainer("a", runtimetest.ScriptServe)))...)
		if asked, _, applied, _ := c.totals(); asked != 1 || applied != 4 {
			t.Errorf("%d pods were asked for, %d actions applied", asked, applied)
		}
		c.forget()
		r.update(pods...)
		// removable cannot be compared, so pods that are not desired are observed again each time; here it is one.
		if asked, _, _, _ := c.totals(); asked != 1 {
			t.Errorf("one goes: %d pods were asked for", asked)
		}
	})
}
