package pool_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/runtimetest"
)

// began returns the containers started since the last call, in order.
func (r *rig) began() string { return r.those(runner.StartContainer) }

func (r *rig) those(kinds ...runner.ActionKind) string {
	var all []string
	for _, e := range r.fake.Journal() {
		if slices.Contains(kinds, e.Action.Kind) {
			all = append(all, e.Action.Container)
		}
	}
	r.fake.ClearJournal()
	return strings.Join(all, " ")
}

func (r *rig) wantPhase(phase corev1.PodPhase) *corev1.Pod {
	r.t.Helper()
	s := r.status("web")
	if s.Pod.Status.Phase != phase {
		r.t.Errorf("phase %s (%s), want %s", s.Pod.Status.Phase, s.Why, phase)
	}
	return s.Pod
}

func TestInitContainersRunInOrderAndOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := initPod("web", testContainer("one", "after 10s"), testContainer("two", "after 10s"))
		r.update(pod)
		p := r.wantPhase(corev1.PodPending)
		if got := r.began(); got != "one" {
			t.Errorf("started %q", got)
		}
		if w := r.status("web").Why; w != "init container one: running before the others" {
			t.Errorf("why: %s", w)
		}
		c := conditionsOf(p)[corev1.PodInitialized]
		if c.Status != "False" || c.Reason != podstatus.ReasonContainersNotInitialized || c.Message != "containers with incomplete status: [one two]" {
			t.Errorf("condition %+v", c)
		}
		if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != runner.ReasonPodInitializing {
			t.Errorf("the regular container: %+v", p.Status.ContainerStatuses[0].State)
		}
		r.pass(10 * time.Second)
		if got := r.began(); got != "two" {
			t.Errorf("then started %q", got)
		}
		r.wantPhase(corev1.PodPending)
		r.pass(10 * time.Second)
		if got := r.began(); got != "main" {
			t.Errorf("at last started %q", got)
		}
		p = r.wantPhase(corev1.PodRunning)
		for _, st := range p.Status.InitContainerStatuses {
			if st.State.Terminated == nil || st.State.Terminated.ExitCode != 0 || !st.Ready || st.RestartCount != 0 {
				t.Errorf("%s: %+v", st.Name, st)
			}
		}
		if c := conditionsOf(p)[corev1.PodInitialized]; c.Status != "True" || c.Reason != "" {
			t.Errorf("condition %+v", c)
		}
		r.restart()
		r.update(pod)
		if err := r.fake.Exit(key("web"), "main", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		if got := r.began(); got != "main" {
			t.Errorf("after a crash started %q", got)
		}
	})
}

func TestAFailingInitContainerIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		began := time.Now()
		pod := initPod("web", testContainer("one", runtimetest.ScriptFail))
		r.update(pod)
		r.pass(100 * time.Second)
		if got := times(r.fake.Journal(), runner.StartContainer, began); got != "0 0 10 30 70" {
			t.Errorf("starts at %s", got)
		}
		p := r.wantPhase(corev1.PodPending)
		st := p.Status.InitContainerStatuses[0]
		if st.State.Waiting == nil || st.State.Waiting.Reason != runner.ReasonCrashLoopBackOff || st.RestartCount != 4 {
			t.Errorf("%+v", st)
		}
		// After the fix, the whole pod is recreated with a new uid.
		r.fake.ClearJournal()
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.InitContainers[0] = testContainer("one", runtimetest.ScriptSucceed) }))
		r.pass(time.Second)
		if got := r.began(); got != "one main" {
			t.Errorf("started %q", got)
		}
		if q := r.wantPhase(corev1.PodRunning); q.UID == p.UID {
			t.Error("an edit of an init container left the sandbox as it was")
		}
	})
}

func TestAnInitContainerThatFailsWithPolicyNeverFailsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := edited(initPod("web", testSidecar("side", runtimetest.ScriptServe), testContainer("one", runtimetest.ScriptFailSoon)), func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
		})
		r.update(pod)
		r.pass(time.Minute)
		if got := r.began(); got != "side one" {
			t.Errorf("started %q", got)
		}
		check := func(when string) {
			t.Helper()
			p := r.wantPhase(corev1.PodFailed)
			if st := p.Status.InitContainerStatuses; st[0].State.Terminated == nil || st[1].State.Terminated == nil || st[1].State.Terminated.ExitCode != 7 {
				t.Errorf("%s: %+v", when, st)
			}
			if w := r.status("web").Why; !strings.Contains(w, "init container one: exited with 7 (Error), not restarted by restart policy Never") {
				t.Errorf("%s: why: %s", when, w)
			}
		}
		check("at first")
		r.fake.Reboot()
		r.restart()
		r.update(pod)
		r.pass(time.Minute)
		check("after a reboot")
		if got := r.began(); got != "" {
			t.Errorf("a reboot started %q", got)
		}
	})
}

func TestSidecarsStartBeforeTheOthersAndStopAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		slow := func(c corev1.Container) corev1.Container { c.Command[2] = runtimetest.ScriptSlowStop; return c }
		pod := edited(initPod("web",
			slow(testSidecar("s1", "")), testContainer("one", runtimetest.ScriptSucceed), slow(testSidecar("s2", "")),
		), func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{slow(testContainer("a", "")), slow(testContainer("b", ""))}
		})
		r.update(pod)
		r.pass(time.Second)
		if got := r.began(); got != "s1 one s2 a b" {
			t.Errorf("started %q", got)
		}
		r.wantPhase(corev1.PodRunning)
		// A sidecar that crashes is restarted alone; an edited one is replaced alone.
		if err := r.fake.Exit(key("web"), "s1", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		if got := r.began(); got != "s1" {
			t.Errorf("a crash started %q", got)
		}
		pod = edited(pod, func(p *corev1.Pod) { p.Spec.InitContainers[2].Image = "busybox:2" })
		r.update(pod)
		r.pass(time.Minute)
		if got := r.began(); got != "s2" {
			t.Errorf("an edit started %q", got)
		}
		r.update()
		r.pass(100 * time.Millisecond)
		if got := r.those(runner.StopContainer); got != "a b" {
			t.Errorf("told to stop at first: %q", got)
		}
		r.pass(200 * time.Millisecond)
		if got := r.those(runner.StopContainer); got != "s2" {
			t.Errorf("told to stop then: %q", got)
		}
		r.pass(200 * time.Millisecond)
		if got := r.those(runner.StopContainer); got != "s1" {
			t.Errorf("told to stop at last: %q", got)
		}
		r.pass(time.Second)
		if n := len(r.pool.Pods()); n != 0 {
			t.Errorf("%d pods left", n)
		}
	})
}

func TestSidecarsShareTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		stubborn := runtimetest.ScriptStubborn
		pod := edited(initPod("web", testSidecar("s1", stubborn), testSidecar("s2", stubborn)), func(p *corev1.Pod) {
			p.Spec.Containers[0].Command[2] = stubborn
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
		})
		r.update(pod)
		r.pass(time.Second)
		began := time.Now()
		r.update()
		r.pass(time.Minute)
		// The regular container is killed after 10 s; both sidecars then get 2 s, at the same time.
		all := r.fake.Journal()
		if got := times(all, runner.StopContainer, began); got != "0 10 10" {
			t.Errorf("signals at %s", got)
		}
		if got := times(all, runner.KillContainer, began); got != "10 12 12" {
			t.Errorf("kills at %s", got)
		}
	})
}

func TestSidecarsEndWithThePod(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			pod := edited(initPod("web", testSidecar("s1", runtimetest.ScriptServe), testSidecar("s2", runtimetest.ScriptServe)), func(p *corev1.Pod) {
				p.Spec.RestartPolicy = policy
				p.Spec.Containers = []corev1.Container{testContainer("a", "after 10s"), testContainer("b", "after 20s")}
			})
			r.update(pod)
			r.pass(11 * time.Second)
			r.wantPhase(corev1.PodRunning)
			if err := r.fake.Exit(key("web"), "s1", 0); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Second)
			if got := r.began(); got != "s1 s2 a b s1" {
				t.Errorf("%s: started %q", policy, got)
			}
			r.pass(10 * time.Second)
			if got := r.those(runner.StopContainer); got != "s2 s1" {
				t.Errorf("%s: stopped %q", policy, got)
			}
			r.wantPhase(corev1.PodSucceeded)
			r.restart()
			r.update(pod)
			r.pass(time.Hour)
			r.expect("at rest", "")
			r.fake.Reboot()
			r.restart()
			r.update(pod)
			r.pass(time.Hour)
			r.expect("at rest after a reboot", "")
			r.wantPhase(corev1.PodSucceeded)
		})
	}
}

func TestRebootRerunsAllContainersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := edited(initPod("web", testContainer("one", runtimetest.ScriptSucceed), testSidecar("side", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			p.Spec.Containers = append(p.Spec.Containers, testContainer("job", runtimetest.ScriptSucceed))
		})
		r.update(pod)
		r.pass(time.Second)
		if got := r.began(); got != "one side main job" {
			t.Errorf("started %q", got)
		}
		r.fake.Reboot()
		r.restart()
		r.update(pod)
		r.pass(time.Second)
		if got := r.began(); got != "one side main" {
			t.Errorf("after the reboot started %q", got)
		}
		p := r.wantPhase(corev1.PodRunning)
		for _, st := range []corev1.ContainerStatus{p.Status.InitContainerStatuses[0], p.Status.InitContainerStatuses[1], p.Status.ContainerStatuses[0]} {
			if st.RestartCount != 1 || st.LastTerminationState.Terminated == nil {
				t.Errorf("%s: %+v", st.Name, st)
			}
		}
		if got := p.Status.ContainerStatuses[1]; got.State.Terminated == nil || got.RestartCount != 0 {
			t.Errorf("the completed container: %+v", got)
		}
	})
}

func TestImagesArePulledWhileInitContainersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage && a.Container == "main" {
				return 8 * time.Second
			}
			return time.Millisecond
		}
		r.start()
		r.update(initPod("web", testContainer("one", "after 10s")))
		r.pass(10*time.Second + 100*time.Millisecond)
		if got := r.began(); got != "one main" {
			t.Errorf("started %q", got)
		}
	})
}

// TestAgentMayDieDuringInitialization repeats a life; each time the agent dies one action later. No init container that has
// succeeded runs twice.
func TestAgentMayDieDuringInitialization(t *testing.T) {
	pod := initPod("web", testContainer("one", runtimetest.ScriptSucceed), testSidecar("side", runtimetest.ScriptServe), testContainer("two", runtimetest.ScriptSucceed))
	for kill := 1; ; kill++ {
		died := false
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.fake.NetworkDelay = 20 * time.Millisecond
			r.fake.KillAfter(kill)
			r.start()
			for i, pods := range [][]*manifests.Pod{{pod}, {}} {
				r.update(pods...)
				r.pass(5 * time.Second)
				select {
				case <-r.fake.Died():
					died = true
					r.restart()
					r.update(pods...)
					r.pass(90 * time.Second)
				default:
				}
				st := r.fake.State(key("web"))
				if len(pods) == 0 {
					if st.Sandbox != nil || len(st.Containers) > 0 {
						t.Errorf("killed after %d actions: left over %+v", kill, st)
					}
					continue
				}
				if actions, _ := plan.Plan(time.Now(), pod, plan.Observed{PodState: st}); len(actions) > 0 {
					t.Errorf("killed after %d actions, in step %d: %+v, to do: %v", kill, i, st, actions)
				}
				if got := r.began(); got != "one side two main" {
					t.Errorf("killed after %d actions: started %q", kill, got)
				}
			}
		})
		if !died {
			if kill < 20 {
				t.Errorf("the life had only %d actions", kill-1)
			}
			return
		}
	}
}

func TestContainersRestartedByEdit(t *testing.T) {
	base := initPod("web", testContainer("one", runtimetest.ScriptSucceed), testSidecar("side", runtimetest.ScriptServe))
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string // containers that are started again
	}{
		{"an init container's environment", func(p *corev1.Pod) { p.Spec.InitContainers[0].Env = []corev1.EnvVar{{Name: "N"}} }, "one side main"},
		{"an init container more", func(p *corev1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, testContainer("two", runtimetest.ScriptSucceed))
		}, "one side two main"},
		{"an init container less", func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[1:] }, "side main"},
		{"a sidecar more", func(p *corev1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, testSidecar("late", runtimetest.ScriptServe))
		}, "late"},
		{"a sidecar less", func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[:1] }, ""},
		{"a sidecar that becomes an init container", func(p *corev1.Pod) {
			p.Spec.InitContainers[1] = testContainer("side", runtimetest.ScriptSucceed)
		}, "one side main"},
		{"a regular container", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }, "main"},
		{"its pull policy", func(p *corev1.Pod) { p.Spec.InitContainers[0].ImagePullPolicy = corev1.PullNever }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				r.update(base)
				r.pass(time.Second)
				r.fake.ClearJournal()
				pod := edited(base, tt.change)
				r.update(pod)
				r.pass(time.Minute)
				if got := r.began(); got != tt.want {
					t.Errorf("started %q, want %q", got, tt.want)
				}
				if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
					t.Errorf("%s: %s", s.Pod.Status.Phase, s.Why)
				}
				st := r.fake.State(key("web"))
				if n := len(st.Containers); n != len(pod.Object.Spec.InitContainers)+1 {
					t.Errorf("%d instances", n)
				}
				if actions, next := plan.Plan(time.Now(), pod, plan.Observed{PodState: st}); len(actions) > 0 || !next.IsZero() {
					t.Errorf("not at rest: %v", actions)
				}
			})
		})
	}
}

func TestLaterContainersWaitForRestartOfEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No container runs when the sidecar crash-loops: the regular container waits for it.
		r := newRig(t).start()
		r.update(initPod("web", testSidecar("side", runtimetest.ScriptFailSoon)))
		r.pass(400 * time.Millisecond)
		if got := r.began(); got != "side main" {
			t.Errorf("started %q", got)
		}
		r.pass(5 * time.Second) // the back-off of the sidecar is 10 s now
		if err := r.fake.Exit(key("web"), "main", 1); err != nil {
			t.Fatal(err)
		}
		r.pass(3 * time.Second)
		if got := r.began(); got != "side" {
			t.Errorf("then started %q", got)
		}
		r.pass(3 * time.Second)
		if got := r.began(); got != "side main" {
			t.Errorf("at last started %q", got)
		}
	})
}
