package pool_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// scripted runs hooks: "slow" takes 5 s, "fail" fails, "hang" ends only with its context.
func scripted(ctx context.Context, _ manifests.Key, _ string, r runner.ExecRequest) (runner.ExecResult, error) {
	switch r.Command[0] {
	case "slow":
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
			return runner.ExecResult{}, ctx.Err()
		}
	case "fail":
		return runner.ExecResult{ExitCode: 7, Output: []byte("no")}, nil
	case "hang":
		<-ctx.Done()
		return runner.ExecResult{}, ctx.Err()
	}
	return runner.ExecResult{}, nil
}

func hookRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.fake.OnExec = scripted
	return r.start()
}

func TestPostStartHookDelaysLaterContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookRig(t)
		pod := edited(initPod("web", hooked(testSidecar("side", runtimetest.ScriptServe), "slow side", "")), func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{hooked(testContainer("a", runtimetest.ScriptServe), "slow a", ""), testContainer("b", runtimetest.ScriptServe)}
		})
		r.update(pod)
		for _, want := range []string{"side", "a", "b"} {
			if got := r.began(); got != want {
				t.Errorf("started %q, want %q", got, want)
			}
			if want == "a" {
				s := r.status("web")
				if st := s.Pod.Status.ContainerStatuses[0]; st.Ready || *st.Started || st.State.Running == nil || s.Why != "container a: its postStart hook is running" {
					t.Errorf("%+v, why %s", st, s.Why)
				}
			}
			r.pass(5 * time.Second)
		}
		if s := r.wantPhase(corev1.PodRunning); !s.Status.ContainerStatuses[0].Ready || !*s.Status.ContainerStatuses[0].Started {
			t.Errorf("%+v", s.Status.ContainerStatuses[0])
		}
		r.restart()
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers[1] = hooked(p.Spec.Containers[1], "added", "") }))
		r.pass(time.Minute)
		if got := strings.Join(r.fake.Executed(), ", "); got != "side: slow side, a: slow a" {
			t.Errorf("executed %s", got)
		}
	})
}

func TestPostStartHookDelaysLaterContainersDuringPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.OnExec = scripted
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage && a.Container == "a" {
				return time.Minute
			}
			return time.Millisecond
		}
		r.start()
		r.update(testPod("web", hooked(testContainer("a", runtimetest.ScriptServe), "slow", ""), testContainer("b", runtimetest.ScriptServe)))
		r.pass(62 * time.Second)
		if got := r.began(); got != "a" {
			t.Errorf("started %q", got)
		}
		r.pass(5 * time.Second)
		if got := r.began(); got != "b" {
			t.Errorf("then started %q", got)
		}
	})
}

func TestFailedPostStartHookStopsContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookRig(t)
		began := time.Now()
		pod := testPod("web", hooked(testContainer("a", runtimetest.ScriptServe), "fail", ""), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		r.pass(35 * time.Second)
		var a []runtimetest.Entry
		for _, e := range r.fake.Journal() {
			if e.Action.Container == "a" {
				a = append(a, e)
			}
		}
		if got := times(a, runner.StartContainer, began); got != "0 1 11 31" {
			t.Errorf("started at %s", got)
		}
		s := r.status("web")
		st := s.Pod.Status.ContainerStatuses
		if w := st[0].State.Waiting; w == nil || w.Reason != runner.ReasonPostStartHookError || !strings.Contains(w.Message, `exec fail: exit code 7, output "no"`) {
			t.Errorf("%+v", st[0].State)
		}
		if st[1].State.Running == nil {
			t.Errorf("the other container: %+v", st[1].State)
		}
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
			name := "p" + strings.ToLower(string(policy))
			r.update(edited(testPod(name, pod.Object.Spec.Containers[0]), func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }))
			r.pass(25 * time.Second)
			want := map[corev1.RestartPolicy]corev1.PodPhase{corev1.RestartPolicyOnFailure: corev1.PodRunning, corev1.RestartPolicyNever: corev1.PodSucceeded}
			if s := r.status(name).Pod; s.Status.Phase != want[policy] { // the container itself exits with 0 when it is stopped
				t.Errorf("%s: %s", policy, s.Status.Phase)
			}
		}
	})
}

func TestPreStopHookRunsBeforeSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ hook, signals, kills string }{
			{"slow", "5", "30"}, {"fail", "0", "30"}, {"hang", "30", "32"},
		} {
			r := hookRig(t)
			r.update(testPod("web", hooked(testContainer("a", runtimetest.ScriptStubborn), "", tt.hook)))
			began := time.Now()
			r.update()
			r.pass(2 * time.Minute)
			all := r.fake.Journal()
			if got := times(all, runner.StopContainer, began); got != tt.signals {
				t.Errorf("%s: signals at %s", tt.hook, got)
			}
			if got := times(all, runner.KillContainer, began); got != tt.kills {
				t.Errorf("%s: killed at %s", tt.hook, got)
			}
			if got := len(r.fake.Executed()); got != 1 || len(r.pool.Pods()) != 0 {
				t.Errorf("%s: ran %d times, %d pods left", tt.hook, got, len(r.pool.Pods()))
			}
			r.stop()
		}
	})
}

func TestPreStopHookAcrossAgentRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookRig(t)
		r.update(testPod("web", hooked(testContainer("a", runtimetest.ScriptStubborn), "", "slow")))
		began := time.Now()
		r.update()
		r.pass(3 * time.Second)
		r.restart() // during the hook: it runs again, but the grace period does not restart
		r.update()
		r.pass(10 * time.Second)
		r.restart() // after the hook: it does not run again
		r.update()
		r.pass(time.Minute)
		all := r.fake.Journal()
		if got := times(all, runner.StopContainer, began); got != "8" {
			t.Errorf("signal at %s", got)
		}
		if got := times(all, runner.KillContainer, began); got != "30" {
			t.Errorf("killed at %s", got)
		}
		if got := len(r.fake.Executed()); got != 2 {
			t.Errorf("ran %d times", got)
		}
	})
}

func TestPreStopHooksOfSidecarsDoNotWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookRig(t)
		r.update(edited(initPod("web", hooked(testSidecar("side", runtimetest.ScriptServe), "", "quick")), func(p *corev1.Pod) {
			p.Spec.Containers[0] = hooked(p.Spec.Containers[0], "", "slow")
		}))
		r.pass(time.Second)
		began := time.Now()
		r.fake.ClearJournal()
		r.update()
		r.pass(time.Second)
		if got := r.fake.Executed(); !slices.Contains(got, "side: quick") || !slices.Contains(got, "main: slow") {
			t.Errorf("executed %v", got)
		}
		r.pass(time.Minute)
		if got := times(r.fake.Journal(), runner.StopContainer, began); got != "5 5" || len(r.pool.Pods()) != 0 {
			t.Errorf("signals at %s", got)
		}
	})
}

func TestThePreStopHookIsThatOfTheOldDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookRig(t)
		pod := testPod("web", hooked(testContainer("a", runtimetest.ScriptServe), "", "old"))
		r.update(pod)
		pod = edited(pod, func(p *corev1.Pod) {
			p.Spec.Containers[0] = hooked(p.Spec.Containers[0], "", "new")
			p.Spec.Containers[0].Image = "busybox:2"
		})
		r.update(pod)
		r.pass(time.Minute)
		pod = edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0] = hooked(p.Spec.Containers[0], "", "newer") })
		r.update(pod) // a changed hook alone restarts nothing
		r.pass(time.Minute)
		r.update()
		r.pass(time.Minute)
		if got := strings.Join(r.fake.Executed(), ", "); got != "a: old, a: newer" {
			t.Errorf("executed %s", got)
		}
	})
}

func TestNoHookRunsWithoutGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookRig(t)
		r.update(edited(testPod("web", hooked(testContainer("a", runtimetest.ScriptServe), "", "slow")), func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		}))
		r.update()
		r.pass(time.Second)
		if got := r.fake.Executed(); len(got) != 0 || len(r.pool.Pods()) != 0 {
			t.Errorf("executed %v", got)
		}
	})
}
