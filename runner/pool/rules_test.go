package pool_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

const (
	restart    = corev1.ContainerRestartRuleActionRestart
	restartAll = corev1.ContainerRestartRuleActionRestartAllContainers
	in         = corev1.ContainerRestartRuleOnExitCodesOpIn
	notIn      = corev1.ContainerRestartRuleOnExitCodesOpNotIn
)

// restarter returns a container whose exit with 42 restarts the whole pod.
func restarter() corev1.Container {
	return ruled(testContainer("main", runtimetest.ScriptServe), "Never", onCodes(restartAll, in, 42))
}

func TestAllContainersAreRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.OnExec = scripted
		r.start()
		pod := edited(initPod("web", testContainer("one", runtimetest.ScriptSucceed), testSidecar("side", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.Containers = []corev1.Container{
				restarter(), testContainer("done", runtimetest.ScriptSucceed),
				hooked(testContainer("stubborn", runtimetest.ScriptStubborn), "", "slow"),
			}
		})
		r.update(pod)
		r.pass(time.Minute)
		before := r.wantPhase(corev1.PodRunning)
		if got := r.began(); got != "one side main done stubborn" {
			t.Errorf("started %q", got)
		}
		began := time.Now()
		if err := r.fake.Exit(key("web"), "main", 42); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		if c := conditionsOf(r.wantPhase(corev1.PodPending))[corev1.AllContainersRestarting]; c.Status != "True" {
			t.Errorf("condition %+v", c)
		}
		r.pass(1500 * time.Millisecond)
		all := r.fake.Journal()
		if got := r.began(); got != "one side main done stubborn" {
			t.Errorf("then started %q", got)
		}
		if got := times(all, runner.KillContainer, began); got != "2" || len(r.fake.Executed()) != 0 {
			t.Errorf("killed at %s, executed %v", got, r.fake.Executed())
		}
		p := r.wantPhase(corev1.PodRunning)
		if p.UID != before.UID || len(conditionsOf(p)[corev1.AllContainersRestarting].Status) != 0 {
			t.Errorf("uid %s, then %s; %+v", before.UID, p.UID, p.Status.Conditions)
		}
		for _, st := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			last := st.LastTerminationState.Terminated
			want := map[string]string{"one": "Completed", "done": "Completed", "main": "Error"}[st.Name]
			if want == "" {
				want = runner.ReasonRestartingAllContainers
			}
			if st.RestartCount != 1 || last == nil || last.Reason != want {
				t.Errorf("%s: %d restarts, last %+v", st.Name, st.RestartCount, last)
			}
		}
		// The second time it waits for its back-off, and nothing is started meanwhile.
		began = time.Now()
		if err := r.fake.Exit(key("web"), "main", 42); err != nil {
			t.Fatal(err)
		}
		r.pass(5 * time.Second)
		r.restart()
		r.update(pod)
		r.pass(20 * time.Second)
		if got := times(r.fake.Journal(), runner.StartContainer, began); got != "10 10 10 10 10" {
			t.Errorf("started at %s", got)
		}
		// The rule does not match other exit codes.
		if err := r.fake.Exit(key("web"), "main", 1); err != nil {
			t.Fatal(err)
		}
		r.fake.ClearJournal()
		r.pass(time.Hour)
		if got := r.began(); got != "" {
			t.Errorf("at last started %q", got)
		}
	})
}

// TestAgentMayDieDuringRestartOfAllContainers has the agent die one action later each time.
func TestAgentMayDieDuringRestartOfAllContainers(t *testing.T) {
	pod := edited(initPod("web", testContainer("one", runtimetest.ScriptSucceed)), func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{testContainer("a", runtimetest.ScriptSlowStop), restarter(), testContainer("b", runtimetest.ScriptServe)}
	})
	for kill := 1; ; kill++ {
		died := false
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			r.update(pod)
			r.pass(time.Second)
			r.fake.ClearJournal()
			r.fake.KillAfter(kill)
			if err := r.fake.Exit(key("web"), "main", 42); err != nil {
				t.Fatal(err)
			}
			r.pass(5 * time.Second)
			select {
			case <-r.fake.Died():
				died = true
				r.restart()
				r.update(pod)
				r.pass(90 * time.Second)
			default:
			}
			if got := r.began(); got != "one a main b" {
				t.Errorf("killed after %d actions: started %q", kill, got)
			}
			st := r.fake.State(key("web"))
			if actions, next := plan.Plan(time.Now(), pod, plan.Observed{PodState: st}); len(actions) > 0 || !next.IsZero() || len(st.Containers) != 4 {
				t.Errorf("killed after %d actions: %+v, to do: %v", kill, st, actions)
			}
		})
		if !died {
			if kill < 10 {
				t.Errorf("there were only %d actions", kill-1)
			}
			return
		}
	}
}

func TestTheStopSignalOfTheManifestIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		c := testContainer("a", runtimetest.ScriptUser)
		pod := testPod("web", c)
		r.update(pod)
		began := time.Now()
		// A changed signal alone restarts nothing, and applies to the running container.
		pod = edited(pod, func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGUSR1)}
		})
		r.update(pod)
		if st := r.status("web").Pod.Status.ContainerStatuses[0]; st.RestartCount != 0 || st.StopSignal == nil || *st.StopSignal != corev1.SIGUSR1 {
			t.Errorf("%+v", st)
		}
		r.update()
		r.pass(time.Second)
		if got := times(r.fake.Journal(), runner.KillContainer, began); got != "" || len(r.pool.Pods()) != 0 {
			t.Errorf("killed at %s", got)
		}
		if !strings.Contains(r.log.String(), "exitCode=5") {
			t.Error("it did not get the signal")
		}
	})
}

func TestARebootAfterAllWereRestartedStartsThemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", restarter(), testContainer("b", runtimetest.ScriptServe))
		r.update(pod)
		if err := r.fake.Exit(key("web"), "main", 42); err != nil {
			t.Fatal(err)
		}
		r.pass(5 * time.Second)
		if got := r.began(); got != "main b main b" {
			t.Errorf("started %q", got)
		}
		r.fake.Reboot()
		r.restart()
		r.update(pod)
		r.pass(time.Minute)
		// With policy Never, main is not restarted when its exit is unknown; b always is.
		if got := r.began(); got != "b" {
			t.Errorf("after a reboot started %q", got)
		}
	})
}
