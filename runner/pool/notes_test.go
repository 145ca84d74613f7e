package pool_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// The tests of this file cover cases of kubelet test suites that no other test here covers; docs/field-notes.md lists their sources.

// onPort returns a pod whose container serves on a host port.
func onPort(namespace, container string) *manifests.Pod {
	c := testContainer(container, runtimetest.ScriptSlowStop)
	c.Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
	return edited(testPod("web", c), func(p *corev1.Pod) {
		p.Namespace = namespace
		p.Spec.HostNetwork = true
	})
}

// TestHostPortIsReleasedBeforeReuse: a kubelet rejects the second of these edits permanently.
func TestHostPortIsReleasedBeforeReuse(t *testing.T) {
	const slowStop = 200 * time.Millisecond // in the script
	for _, tt := range []struct {
		name          string
		before, after *manifests.Pod
	}{
		{"the container has another name", onPort("default", "old"), onPort("default", "new")},
		{"the pod has another namespace", onPort("default", "same"), onPort("other", "same")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				r.update(tt.before)
				r.fake.ClearJournal()
				r.update(tt.after)
				r.pass(time.Minute)
				var ended, started time.Time
				for _, e := range r.fake.Journal() {
					switch {
					case e.Key == tt.before.Key() && e.Action.Kind == runner.StopContainer:
						ended = e.At
					case e.Key == tt.after.Key() && e.Action.Kind == runner.StartContainer:
						started = e.At
					}
				}
				if d := started.Sub(ended); ended.IsZero() || d < slowStop || d > slowStop+time.Second {
					t.Errorf("told to stop at %s, the next one started after %s:\n%s", ended, d, r.journal())
				}
				pods := r.pool.Pods()
				if len(pods) != 1 || pods[0].Key() != tt.after.Key() || pods[0].Pod.Status.Phase != corev1.PodRunning || pods[0].Why != "" {
					t.Errorf("there are %+v", pods)
				}
			})
		})
	}
}

// TestOnlyNewContainerWaitsForRemovedOne removes a container from the manifest that takes 30 s to end.
func TestOnlyNewContainerWaitsForRemovedOne(t *testing.T) {
	serving := func(script string) *manifests.Pod {
		c := testContainer("serving", script)
		c.Ports = []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}
		return testPod("web", c, testContainer("out", runtimetest.ScriptStubborn))
	}
	for _, tt := range []struct {
		name   string
		before *manifests.Pod
		change func(*corev1.Pod)
	}{
		{"another one is edited", serving(runtimetest.ScriptServe), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }},
		{"another one ends", serving("after 10s"), func(*corev1.Pod) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				r.update(tt.before)
				r.pass(time.Second)
				r.fake.ClearJournal()
				r.update(edited(tt.before, func(p *corev1.Pod) {
					tt.change(p)
					p.Spec.Containers = p.Spec.Containers[:1]
				}))
				r.pass(25 * time.Second)
				started, killed := false, false
				for _, e := range r.fake.Journal() {
					started = started || e.Action.Kind == runner.StartContainer && e.Action.Container == "serving"
					killed = killed || e.Action.Kind == runner.KillContainer
				}
				if !started || killed {
					t.Errorf("it was started: %t, the other one killed: %t\n%s", started, killed, r.journal())
				}
			})
		})
	}
}

func TestInitContainerOrSidecarRemovedWhileAgentIsDown(t *testing.T) {
	base := initPod("web", testContainer("one", runtimetest.ScriptSucceed), testSidecar("side", runtimetest.ScriptServe))
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
	}{
		{"the init container", func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[1:] }},
		{"the sidecar", func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[:1] }},
		{"both", func(p *corev1.Pod) { p.Spec.InitContainers = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				r.update(base)
				r.pass(time.Second)
				pod := edited(base, tt.change)
				r.restart()
				r.update(pod)
				r.pass(time.Minute)
				p := r.wantPhase(corev1.PodRunning)
				if n := len(p.Status.InitContainerStatuses); n != len(pod.Object.Spec.InitContainers) || !p.Status.ContainerStatuses[0].Ready {
					t.Errorf("status %+v", p.Status)
				}
				r.journal()
				r.restart()
				r.update(pod)
				r.pass(time.Minute)
				r.expect("another restart", "")
			})
		})
	}
}

func TestManifestRemovedWhileAgentIsDownLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		gone, stays := initPod("web", testSidecar("side", runtimetest.ScriptServe)), testPod("stays", testContainer("a", runtimetest.ScriptServe))
		r.update(gone, stays)
		r.pass(time.Second)
		r.restart()
		r.update(stays)
		r.pass(time.Minute)
		if st := r.fake.State(key("web")); len(st.Containers) > 0 || st.Sandbox != nil {
			t.Errorf("left: %+v", st)
		}
		if s := r.status("stays"); s.Pod.Status.Phase != corev1.PodRunning || s.Pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the other one: %+v", s.Pod.Status)
		}
	})
}

func TestRestoredManifestRunsAgain(t *testing.T) {
	for name, after := range map[string]time.Duration{"while the pod ends": time.Second, "when it is gone": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				pod := testPod("web", testContainer("a", runtimetest.ScriptStubborn))
				r.update(pod)
				r.update()
				r.pass(after)
				r.update(pod)
				r.pass(time.Minute)
				s := r.status("web")
				if s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" || s.Pod.DeletionTimestamp != nil {
					t.Fatalf("%s: %s", s.Pod.Status.Phase, s.Why)
				}
				if st := r.fake.State(key("web")); len(st.Containers) != 1 {
					t.Errorf("%d instances", len(st.Containers))
				}
				r.journal()
				r.pass(time.Minute)
				r.expect("and stays", "")
			})
		})
	}
}

func TestEditWaitsForGracePeriodOfOldInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptStubborn))
		r.update(pod)
		began := time.Now()
		r.fake.ClearJournal()
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }))
		r.pass(29 * time.Second)
		if got := times(r.fake.Journal(), runner.KillContainer, began) + times(r.fake.Journal(), runner.StartContainer, began); got != "" {
			t.Errorf("within the grace period: at %s", got)
		}
		r.pass(time.Minute)
		if got := times(r.fake.Journal(), runner.KillContainer, began) + ", " + times(r.fake.Journal(), runner.StartContainer, began); got != "30, 30" {
			t.Errorf("killed and started at %s", got)
		}
	})
}

func TestTerminationContinuesAfterContainerdReturns(t *testing.T) {
	for name, away := range map[string]time.Duration{"within the grace period": 10 * time.Second, "after it": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				r.update(testPod("web", testContainer("a", runtimetest.ScriptStubborn)))
				r.update()
				r.pass(time.Second)
				r.fake.Blind(runtimetest.ErrBlind)
				r.pass(away)
				r.fake.Blind(nil)
				r.pass(31 * time.Second)
				if st := r.fake.State(key("web")); len(st.Containers) > 0 || st.Sandbox != nil {
					t.Errorf("left: %+v", st)
				}
				if n := len(r.pool.Pods()); n != 0 {
					t.Errorf("%d pods left", n)
				}
			})
		})
	}
}
