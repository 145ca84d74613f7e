package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

// debugger is an ephemeral container.
func debugger(name, target string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon(testContainer(name, runtimetest.ScriptServe)), TargetContainerName: target,
	}
}

// debugged returns a running pod with the ephemeral container dbg and these instances of it.
func debugged(pod *manifests.Pod, instances ...runner.Container) plan.Observed {
	o := runs(pod)
	o.Sandbox.Ephemeral = []corev1.EphemeralContainer{debugger("dbg", "")}
	for _, c := range instances {
		c.SandboxID, c.Hash = "s1", "any"
		o.Containers = append(o.Containers, c)
	}
	return o
}

func finished(c *runner.Container) { c.Recorded = true }

func TestEphemeralContainerStartsOnce(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	for _, c := range []struct {
		name   string
		o      plan.Observed
		change func(*plan.Observed)
		want   string
	}{
		{"it is new", debugged(pod), nil, "[EnsureImage dbg CreateContainer dbg (ephemeral container added) StartContainer dbg (ephemeral container added)]"},
		{
			"its image is there",
			debugged(pod),
			func(o *plan.Observed) { o.Prepared = map[string]plan.Preparation{"dbg": plan.PreparationDone} },
			"[CreateContainer dbg (ephemeral container added) StartContainer dbg (ephemeral container added)]",
		},
		{"its image is pulled", debugged(pod), func(o *plan.Observed) { o.Prepared = map[string]plan.Preparation{"dbg": plan.PreparationRunning} }, "[]"},
		{"its image could not be pulled", debugged(pod), func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"dbg": {Reason: runner.ReasonErrImagePull, Count: 1, At: zero}}
		}, "[]"},
		{"its back-off is over", debugged(pod), func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"dbg": {Reason: runner.ReasonErrImagePull, Count: 1, At: zero.Add(-time.Hour)}}
		}, "[EnsureImage dbg CreateContainer dbg (ephemeral container added) StartContainer dbg (ephemeral container added)]"},
		{"its pod has no network yet", debugged(pod), func(o *plan.Observed) {
			o.Sandbox.Network, o.Prepared = runner.NetworkPending, map[string]plan.Preparation{"dbg": plan.PreparationDone}
		}, "[SetupNetwork (network set-up was not completed) CreateContainer dbg (ephemeral container added) StartContainer dbg (ephemeral container added)]"},
		{"it is created", debugged(pod, created("1", "dbg")), nil, "[StartContainer dbg (ready)]"},
		{"it runs", debugged(pod, running("1", "dbg", 1)), nil, "[]"},
		{"it has failed", debugged(pod, exited("1", "dbg", 3, 2)), nil, "[FinishContainer dbg (exited with 3)]"},
		{"that is on record", debugged(pod, with(exited("1", "dbg", 3, 2), finished)), nil, "[]"},
		{"an earlier round had it", debugged(pod, with(exited("1", "dbg", 0, 2), finished)), func(o *plan.Observed) { o.Containers[0].Round = 1 }, "[]"},
		{
			"the manifest is only the recorded one", debugged(pod), func(o *plan.Observed) { o.Kept = true },
			"[EnsureImage dbg CreateContainer dbg (ephemeral container added) StartContainer dbg (ephemeral container added)]",
		},
		{"an edit has taken its name", debugged(edited(pod, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, testContainer("dbg", runtimetest.ScriptServe))
		})), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(&c.o)
			}
			desired := pod
			if c.want == "" {
				desired, c.want = c.o.Sandbox.Pod, "[]"
			}
			wantPlan(t, desired, c.o, c.want)
		})
	}
}

func TestEphemeralContainerWaitsForItsTarget(t *testing.T) {
	pod := initPod("x", testContainer("init", runtimetest.ScriptServe))
	o := runs(pod)
	o.Containers = nil
	o.Prepared = map[string]plan.Preparation{"dbg": plan.PreparationDone, "init": plan.PreparationDone, "main": plan.PreparationDone}
	initRuns := with(running("1", "init", 1), func(c *runner.Container) { c.SandboxID, c.Hash = "s1", podhash.Container(pod.Object, "init") })
	const start = "[CreateContainer dbg (ephemeral container added) StartContainer dbg (ephemeral container added)]"
	for _, c := range []struct {
		name, target string
		all          []runner.Container
		want         string
	}{
		{"init containers do not hold it back", "", []runner.Container{initRuns}, start},
		{"its target runs", "init", []runner.Container{initRuns}, start},
		{"its target does not run yet", "main", []runner.Container{initRuns}, "[]"},
		{"its target is being stopped", "init", []runner.Container{with(initRuns, func(c *runner.Container) { c.StopSentAt = zero })}, "[]"},
		{"there is no such container", "no", []runner.Container{initRuns}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := o
			o.Containers = c.all
			o.Sandbox.Ephemeral = []corev1.EphemeralContainer{debugger("dbg", c.target)}
			wantPlan(t, pod, o, c.want)
		})
	}
}

// TestEphemeralContainerIsCreatedForATargetThatRuns: an instance that was created for a target and not started, because the agent ended in between,
// has the process namespace of a process that may be another one by now.
func TestEphemeralContainerIsCreatedForATargetThatRuns(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	for _, c := range []struct {
		name, target string
		failures     map[string]plan.Failure
		want         string
	}{
		{"without a target", "", nil, "[StartContainer dbg (ready)]"},
		{"with one", "a", nil, "[RemoveContainer dbg (created for an earlier process of its target)]"},
		{"its start has failed", "a", map[string]plan.Failure{"dbg": {Reason: runner.ReasonErrImagePull, Count: 1, At: zero}}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := debugged(pod, created("1", "dbg"))
			o.Sandbox.Ephemeral = []corev1.EphemeralContainer{debugger("dbg", c.target)}
			o.Failures = c.failures
			wantPlan(t, pod, o, c.want)
		})
	}
}

func TestEphemeralContainerStopsLast(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	end := with(exited("id-a", "a", 0, 2), func(c *runner.Container) {
		c.SandboxID, c.Hash, c.Recorded, c.StopSentAt = "s1", podhash.Container(pod.Object, "a"), true, at(1)
	})
	dbg := running("1", "dbg", 1)
	for _, c := range []struct {
		name   string
		change func(*plan.Observed)
		want   string
	}{
		{"others run: its grace period begins", func(*plan.Observed) {}, "[StopContainer a (pod removed) MarkStopping dbg (pod removed)]"},
		{"no other runs", func(o *plan.Observed) { o.Containers[0] = end }, "[StopContainer dbg (pod removed)]"},
		{"none runs", func(o *plan.Observed) {
			o.Containers = []runner.Container{end, with(exited("1", "dbg", 0, 2), func(c *runner.Container) { c.SandboxID = "s1" })}
		}, "[RemoveContainer dbg (pod removed) RemoveContainer a (pod removed) RemoveSandbox (pod removed)]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := debugged(pod, dbg)
			c.change(&o)
			wantPlan(t, nil, o, c.want)
		})
	}
}

func TestEphemeralContainerOfAPodThatEnds(t *testing.T) {
	pod := edited(testPod("x", testContainer("a", runtimetest.ScriptSucceed)), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	over := func(o *plan.Observed) {
		o.Containers[0].State, o.Containers[0].Recorded, o.Containers[0].Exit = runner.ContainerExited, true, &runner.Termination{FinishedAt: at(2)}
	}
	failed := func(o *plan.Observed) {
		o.Sandbox.Failed = &runner.PodFailure{Reason: runner.ReasonDeadlineExceeded, At: at(1)}
	}
	ended := with(exited("1", "dbg", 9, 2), finished)
	for _, c := range []struct {
		name   string
		dbg    []runner.Container
		change func(*plan.Observed)
		want   string
	}{
		{"its own end does not end the pod", []runner.Container{ended}, func(*plan.Observed) {}, "[]"},
		{"a completed pod starts none", nil, over, "[]"},
		{"one that waits is removed", []runner.Container{created("1", "dbg")}, over, "[RemoveContainer dbg (pod terminated)]"},
		{"one that runs is stopped", []runner.Container{running("1", "dbg", 1)}, over, "[StopContainer dbg (pod terminated)]"},
		{"one that has ended stays", []runner.Container{ended}, over, "[]"},
		{"a failed pod stops its others first", []runner.Container{running("1", "dbg", 1)}, failed, "[StopContainer a (pod has failed) MarkStopping dbg (pod has failed)]"},
		{"a failed pod starts none", nil, func(o *plan.Observed) { over(o); failed(o) }, "[]"},
		{"a pod that is evicted for its disk gives its files back", []runner.Container{ended}, func(o *plan.Observed) {
			over(o)
			o.Waits = true
			o.Sandbox.Failed = &runner.PodFailure{Reason: runner.ReasonEvicted, At: at(1), Cause: cause.Cause{Resource: runner.ResourceDisk}}
		}, "[RemoveContainer a (evicted: releasing its disk space) RemoveContainer dbg (evicted: releasing its disk space)]"},
		{
			"a halted pod stops it",
			[]runner.Container{running("1", "dbg", 1)},
			func(o *plan.Observed) { over(o); o.Halt = &runner.Halt{Reason: "drained"} },
			"[StopContainer dbg (halted: drained)]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := debugged(pod, c.dbg...)
			c.change(&o)
			wantPlan(t, pod, o, c.want)
		})
	}
}

func TestEphemeralContainerAfterAReboot(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	down := func(pod *manifests.Pod, dbg runner.Container) plan.Observed {
		o := debugged(pod, dbg)
		o.Sandbox.Alive, o.Sandbox.Network = false, runner.NetworkPending
		o.Containers[0].State, o.Containers[0].Recorded, o.Containers[0].Exit = runner.ContainerExited, true, &runner.Termination{ExitCode: 255, FinishedAt: at(2)}
		o.Prepared = map[string]plan.Preparation{"a": plan.PreparationDone}
		return o
	}
	const again = "ReviveSandbox (node restarted) CreateContainer a (node restarted) StartContainer a (node restarted) RemoveContainer a (node restarted)]"
	wantPlan(t, pod, down(pod, with(exited("1", "dbg", 255, 2), finished)), "["+again)
	wantPlan(t, pod, down(pod, created("1", "dbg")), "[RemoveContainer dbg (node restarted) "+again)

	// A pod that runs as it is without its pins starts none, and records the end of one.
	o := debugged(pod, exited("1", "dbg", 0, 2))
	o.Sandbox.Alive = false
	wantPlan(t, pod, o, "[FinishContainer dbg (exited with 0)]")
	// The new sandbox of an edited pod has none.
	o = debugged(pod, with(exited("1", "dbg", 0, 2), finished))
	o.Prepared = map[string]plan.Preparation{"": plan.PreparationDone}
	o.Containers[0].State, o.Containers[0].Recorded, o.Containers[0].StopSentAt = runner.ContainerExited, true, at(1)
	actions, _ := plan.Plan(zero, edited(pod, func(p *corev1.Pod) { p.Spec.Hostname = "other" }), o)
	for _, a := range actions {
		if a.Container == "dbg" && a.Kind != runner.RemoveContainer {
			t.Errorf("%s in a new sandbox: %v", a.Kind, actions)
		}
	}
}
