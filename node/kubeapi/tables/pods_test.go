package tables

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/kubeapi/kinds"
)

func waiting(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func running(ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func ended(code int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}}
}

// restarted says that a container was restarted a number of times, the last time after it had ended some time ago.
func restarted(c corev1.ContainerStatus, n int32, since time.Duration) corev1.ContainerStatus {
	c.RestartCount = n
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ago(since)}
	return c
}

func started(c corev1.ContainerStatus) corev1.ContainerStatus {
	c.Started = new(true)
	return c
}

func podOf(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: named("p"), Status: corev1.PodStatus{Phase: phase, ContainerStatuses: statuses}}
	p.Spec.Containers = make([]corev1.Container, max(1, len(statuses)))
	return p
}

// withInit adds init containers named 0, 1 ...; sidecars are those that restart always.
func withInit(p *corev1.Pod, sidecars map[int]bool, statuses ...corev1.ContainerStatus) *corev1.Pod {
	for i, s := range statuses {
		s.Name = string(rune('0' + i))
		c := corev1.Container{Name: s.Name}
		if sidecars[i] {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
	}
	return p
}

func with(p *corev1.Pod, edit func(*corev1.Pod)) *corev1.Pod {
	edit(p)
	return p
}

func condition(t corev1.PodConditionType, reason string, on bool) func(*corev1.Pod) {
	status := corev1.ConditionFalse
	if on {
		status = corev1.ConditionTrue
	}
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Reason: reason, Status: status})
	}
}

func TestPodsAreShownAsByKubectl(t *testing.T) {
	signal := ended(137, "")
	signal.State.Terminated.Signal = 9
	for _, c := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{podOf("Pending"), "p|0/1|Pending|0|5h"},
		{podOf("Pending", waiting("ContainerCreating")), "p|0/1|ContainerCreating|0|5h"},
		{with(podOf("Pending"), condition(corev1.PodScheduled, corev1.PodReasonSchedulingGated, false)), "p|0/1|SchedulingGated|0|5h"},
		{with(podOf("Failed"), func(p *corev1.Pod) { p.Status.Reason = "Evicted" }), "p|0/1|Evicted|0|5h"},
		{podOf("Running", running(true), running(false)), "p|1/2|Running|0|5h"},
		{podOf("Running", restarted(waiting("CrashLoopBackOff"), 3, 2*time.Minute)), "p|0/1|CrashLoopBackOff|3 (2m ago)|5h"},
		{podOf("Running", restarted(running(true), 1, time.Hour), restarted(running(true), 2, time.Minute)), "p|2/2|Running|3 (60s ago)|5h"},
		{podOf("Running", func() corev1.ContainerStatus { c := running(true); c.RestartCount = 4; return c }()), "p|1/1|Running|4|5h"},
		{podOf("Pending", waiting("ErrImagePull"), waiting("ContainerCreating")), "p|0/2|ErrImagePull|0|5h"},
		{podOf("Failed", ended(1, "Error")), "p|0/1|Error|0|5h"},
		{podOf("Failed", ended(3, "")), "p|0/1|ExitCode:3|0|5h"},
		{podOf("Failed", signal), "p|0/1|Signal:9|0|5h"},
		{podOf("Failed", ended(137, "OOMKilled")), "p|0/1|OOMKilled|0|5h"},
		{podOf("Succeeded", ended(0, "Completed")), "p|0/1|Completed|0|5h"},
		{podOf("Failed", ended(0, "Completed"), ended(2, "Error")), "p|0/2|Error|0|5h"},
		{podOf("Running", ended(0, "Completed"), running(true)), "p|1/2|NotReady|0|5h"},
		{with(podOf("Running", ended(0, "Completed"), running(true)), condition(corev1.PodReady, "", true)), "p|1/2|Running|0|5h"},
		{with(podOf("Running", running(true)), func(p *corev1.Pod) { p.DeletionTimestamp = new(ago(0)) }), "p|1/1|Terminating|0|5h"},
		{with(podOf("Succeeded", ended(0, "Completed")), func(p *corev1.Pod) { p.DeletionTimestamp = new(ago(0)) }), "p|0/1|Completed|0|5h"},
		{with(podOf("Running"), func(p *corev1.Pod) { p.DeletionTimestamp, p.Status.Reason = new(ago(0)), "NodeLost" }), "p|0/1|Unknown|0|5h"},
		{withInit(podOf("Pending", waiting("PodInitializing")), nil, waiting("PodInitializing"), waiting("PodInitializing")), "p|0/1|Init:0/2|0|5h"},
		{withInit(podOf("Pending", waiting("PodInitializing")), nil, ended(0, "Completed"), running(false)), "p|0/1|Init:1/2|0|5h"},
		{withInit(podOf("Pending", waiting("PodInitializing")), nil, restarted(waiting("CrashLoopBackOff"), 5, time.Minute)), "p|0/1|Init:CrashLoopBackOff|5 (60s ago)|5h"},
		{withInit(podOf("Pending", waiting("PodInitializing")), nil, ended(1, "Error")), "p|0/1|Init:Error|0|5h"},
		{withInit(podOf("Pending", waiting("PodInitializing")), nil, ended(1, "")), "p|0/1|Init:ExitCode:1|0|5h"},
		// Restarts of init containers do not count once these are done; those of sidecars do.
		{withInit(podOf("Running", running(true)), nil, restarted(ended(0, "Completed"), 5, time.Minute)), "p|1/1|Running|0|5h"},
		{withInit(podOf("Running", running(true)), map[int]bool{0: true}, restarted(started(running(true)), 5, time.Minute)), "p|2/2|Running|5 (60s ago)|5h"},
		{withInit(podOf("Running", running(true)), map[int]bool{0: true}, started(running(false))), "p|1/2|Running|0|5h"},
		{withInit(podOf("Pending", waiting("PodInitializing")), map[int]bool{0: true}, running(false)), "p|0/2|Init:0/1|0|5h"},
		// A sidecar that fails behind the initialization hides nothing.
		{with(withInit(podOf("Running", running(true)), map[int]bool{0: true}, restarted(waiting("CrashLoopBackOff"), 2, time.Minute)),
			condition(corev1.PodInitialized, "", true)), "p|1/2|Init:CrashLoopBackOff|2 (60s ago)|5h"},
	} {
		if got := joined(Row(kindOf(t, c.pod), c.pod, now)[:5]); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestWideColumnsOfPods(t *testing.T) {
	p := podOf("Running")
	k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if got := joined(Row(k, p, now)[5:]); got != "<none>|<none>|<none>|<none>" {
		t.Error(got)
	}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.9"}, {IP: "fd00::9"}}
	p.Spec.NodeName, p.Status.NominatedNodeName = "n", "m"
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}, {ConditionType: "c"}}
	condition("a", "", true)(p)
	condition("b", "", false)(p)
	if got := joined(Row(k, p, now)[5:]); got != "10.0.0.9|n|m|1/3" {
		t.Error(got)
	}
}
