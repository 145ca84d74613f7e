package podstatus_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/probe"
)

func TestConditions(t *testing.T) {
	tests := []struct {
		name            string
		c               statusCase
		ready           corev1.ConditionStatus
		reason, message string
		since           int
		network         corev1.ConditionStatus
	}{
		{"all ready since the last start", statusCase{instances: []runner.Container{running("1", "a", 3), running("2", "b", 7)}}, "True", "", "", 7, "True"},
		{"nothing exists yet", statusCase{}, "False", "ContainersNotReady", "containers with unready status: [a b]", 0, "True"},
		{
			"one is down since its exit",
			statusCase{instances: []runner.Container{running("1", "a", 3), exited("2", "b", 1, 60)}},
			"False", "ContainersNotReady", "containers with unready status: [b]", 60, "True",
		},
		{
			"one starts again after its exit",
			statusCase{instances: []runner.Container{
				running("1", "a", 3), with(created("2", "b"), func(c *runner.Container) { c.Last = &runner.Termination{FinishedAt: at(50)} }),
			}},
			"False", "ContainersNotReady", "containers with unready status: [b]", 50, "True",
		},
		{"completed", statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 0, 30), exited("2", "b", 0, 60)}}, "False", "PodCompleted", "", 60, "True"},
		{"failed", statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 0, 30), exited("2", "b", 1, 60)}}, "False", "PodFailed", "", 60, "True"},
		{
			"unknown",
			statusCase{
				instances: []runner.Container{running("1", "a", 3), running("2", "b", 7)},
				change:    func(in *podstatus.Input) { in.Blind = errors.New("gone") },
			},
			"Unknown", "RuntimeUnreachable", "gone", 7, "True",
		},
		{"no network yet", statusCase{change: func(in *podstatus.Input) { in.Sandbox.Network = runner.NetworkPending }}, "False", "ContainersNotReady", "containers with unready status: [a b]", 0, "False"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.c.input("a", "b")
			m := conditionsOf(podstatus.Of(in).Pod)
			in.Now = in.Now.Add(time.Hour)
			later := conditionsOf(podstatus.Of(in).Pod)
			for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
				c := m[kind]
				if c.Status != tt.ready || c.Reason != tt.reason || c.Message != tt.message {
					t.Errorf("%s: %s %s %q", kind, c.Status, c.Reason, c.Message)
				}
				if !c.LastTransitionTime.Equal(ptrTime(at(tt.since))) {
					t.Errorf("%s since %s, want %s", kind, c.LastTransitionTime, at(tt.since))
				}
				if c != later[kind] {
					t.Errorf("%s is another an hour later: %v", kind, later[kind])
				}
			}
			if c := m[corev1.PodReadyToStartContainers]; c.Status != tt.network {
				t.Errorf("ready to start containers: %s", c.Status)
			}
			if m[corev1.PodInitialized].Status != "True" || m[corev1.PodScheduled].Status != "True" {
				t.Errorf("%v", m)
			}
		})
	}
}

// TestWhyNoContainerCanBeStarted: the reason and the messages are those of a kubelet.
func TestWhyNoContainerCanBeStarted(t *testing.T) {
	for want, change := range map[string]func(*podstatus.Input){
		"no pod sandbox exists":         func(in *podstatus.Input) { in.Sandbox = nil },
		"pod sandbox is not ready":      func(in *podstatus.Input) { in.Sandbox.Alive = false },
		"pod sandbox has no IP address": func(in *podstatus.Input) { in.Sandbox.Network = runner.NetworkPending },
		"":                              func(*podstatus.Input) {},
	} {
		in := statusCase{change: change}.input("a")
		c, reason := conditionsOf(podstatus.Of(in).Pod)[corev1.PodReadyToStartContainers], ""
		if want != "" {
			reason = "PodSandboxNotReady"
		}
		if c.Reason != reason || c.Message != want || (c.Status == corev1.ConditionTrue) != (want == "") {
			t.Errorf("%q: it is %s %s %q", want, c.Status, c.Reason, c.Message)
		}
	}
}

func ptrTime(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

func TestAPodBeingRemovedIsTerminating(t *testing.T) {
	for name, tt := range map[string]struct {
		stopping, signal, end int
	}{
		"after its signal":     {signal: 90, end: 120},
		"while its hook runs":  {stopping: 90, end: 120},
		"signaled after it":    {stopping: 80, signal: 90, end: 110},
		"signaled at the last": {stopping: 80, signal: 109, end: 111},
	} {
		t.Run(name, func(t *testing.T) {
			in := statusCase{instances: []runner.Container{
				with(running("1", "a", 3), func(c *runner.Container) {
					if tt.stopping > 0 {
						c.StoppingAt = at(tt.stopping)
					}
					if tt.signal > 0 {
						c.StopSentAt = at(tt.signal)
					}
				}),
			}}.input("a")
			in.Desired, in.Removing = nil, true
			p := podstatus.Of(in).Pod
			if p.DeletionTimestamp == nil || !p.DeletionTimestamp.Time.Equal(at(tt.end)) || *p.DeletionGracePeriodSeconds != 30 {
				t.Errorf("deletion %v, grace %v", p.DeletionTimestamp, p.DeletionGracePeriodSeconds)
			}
		})
	}
}

// The status shows a probe's result before it is on record: the time of the condition must not change when it is recorded.
func TestTheTimeOfReadinessIsThatOfTheProbeResult(t *testing.T) {
	readiness := func(in *podstatus.Input) {
		in.Desired.Object.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
		in.Probes = map[string]probe.Health{"1": {Started: true, Ready: true, Since: at(70)}}
	}
	recorded := with(running("1", "a", 1), func(c *runner.Container) { c.Health = runner.Health{Started: true, Ready: true, Since: at(70)} })
	later := func(in *podstatus.Input) { // the next agent's first result
		readiness(in)
		in.Probes["1"] = probe.Health{Started: true, Ready: true, Since: at(90)}
	}
	for name, c := range map[string]statusCase{
		"not recorded": {instances: []runner.Container{running("1", "a", 1)}, change: readiness},
		"recorded":     {instances: []runner.Container{recorded}, change: readiness},
		"next agent":   {instances: []runner.Container{recorded}, change: later},
	} {
		status := podstatus.Of(c.input("a")).Pod.Status
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PodReady && (condition.Status != corev1.ConditionTrue || !condition.LastTransitionTime.Time.Equal(at(70))) {
				t.Errorf("%s: %s since %s, want True since %s", name, condition.Status, condition.LastTransitionTime, at(70))
			}
		}
	}
}
