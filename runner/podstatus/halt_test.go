package podstatus_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/runner"
	"monopod/runner/podstatus"
)

func TestAHaltedPod(t *testing.T) {
	drain, shutdown := runner.Halt{Reason: "Drained", Message: "by hand"}, runner.Halt{Reason: "Terminated", Message: "the machine", Failed: true}
	remove := runner.Halt{Reason: "Moved", Remove: true}
	for name, tt := range map[string]struct {
		c           statusCase
		halt        *runner.Halt
		phase       corev1.PodPhase
		reason, why string
		stopped     bool
	}{
		"it does not halt": {statusCase{instances: []runner.Container{exited("1", "a", 1, 99)}}, nil, corev1.PodRunning, "", "container a: exited with 1 (Error), to be restarted at 2026-01-02T03:01:39Z", false},
		"it still runs":    {statusCase{instances: []runner.Container{running("1", "a", 1)}}, &drain, corev1.PodRunning, "Drained", "being stopped: Drained: by hand", false},
		"it has stopped":   {statusCase{instances: []runner.Container{exited("1", "a", 143, 99)}}, &drain, corev1.PodPending, "Drained", "Drained: by hand", true},
		"it has stopped, and its end is that of the node": {statusCase{instances: []runner.Container{exited("1", "a", 143, 99)}}, &shutdown, corev1.PodFailed, "Terminated", "Terminated: the machine", true},
		"it had completed": {statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 0, 50)}}, &drain, corev1.PodSucceeded, "", "", true},
		"it had failed": {
			statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 2, 50)}},
			&shutdown, corev1.PodFailed, "",
			"container a: exited with 2 (Error), not restarted by restart policy Never", true,
		},
		"it does not exist yet": {statusCase{change: func(in *podstatus.Input) { in.Sandbox = nil }}, &drain, corev1.PodPending, "", "container a: being created", true},
		"its record is left":    {statusCase{instances: []runner.Container{exited("1", "a", 0, 50)}}, &remove, corev1.PodPending, "Moved", "Moved: ", false},
		"its record is gone":    {statusCase{change: func(in *podstatus.Input) { in.Sandbox = nil }}, &remove, corev1.PodPending, "", "container a: being created", true},
	} {
		t.Run(name, func(t *testing.T) {
			in := tt.c.input("a")
			in.Halt = tt.halt
			s := podstatus.Of(in)
			if st := s.Pod.Status; st.Phase != tt.phase || st.Reason != tt.reason || s.Why != tt.why {
				t.Errorf("%s %q: %q", st.Phase, st.Reason, s.Why)
			}
			if s.Stopped() {
				t.Error("it counts as stopped before this agent has observed it")
			}
			if s.Looked = true; s.Stopped() != tt.stopped || s.Halted() != (tt.halt != nil) {
				t.Errorf("stopped %v, halted %v", s.Stopped(), s.Halted())
			}
			disrupted, is := conditionsOf(s.Pod)[corev1.DisruptionTarget]
			if is != (tt.reason == "Terminated") || is && disrupted.Message != "the machine" {
				t.Errorf("%+v", disrupted)
			}
		})
	}
}

// The records of containers are deleted before the pod is gone: watchers must still see how they ended.
func TestResultsStayUntilThePodIsGone(t *testing.T) {
	ended := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7}}}
	}
	waits := func(name string) corev1.ContainerStatus { return corev1.ContainerStatus{Name: name} }
	pod := func(uid string, phase corev1.PodPhase, all ...corev1.ContainerStatus) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase, InitContainerStatuses: all[:1], ContainerStatuses: all[1:]}}
		p.UID = "u" + p.UID
		return p
	}
	now := pod("u", corev1.PodPending, waits("i"), waits("a"), waits("b"))
	if got := podstatus.WithEnds(nil, now); got != now {
		t.Error("the first status is changed")
	}
	before := pod("u", corev1.PodFailed, ended("i"), ended("a"), waits("b"))
	got := podstatus.WithEnds(before, now).Status
	if got.Phase != corev1.PodFailed || got.InitContainerStatuses[0].State.Terminated == nil || got.ContainerStatuses[0].State.Terminated == nil || got.ContainerStatuses[1].State.Terminated != nil {
		t.Errorf("%+v", got)
	}
	if now.Status.Phase != corev1.PodPending || now.Status.ContainerStatuses[0].State.Terminated != nil {
		t.Error("the argument is changed")
	}
	// A new instance has a result of its own.
	again := pod("u", corev1.PodRunning, ended("i"), corev1.ContainerStatus{Name: "a", ContainerID: "containerd://2"}, waits("b"))
	if got := podstatus.WithEnds(before, again).Status; got.Phase != corev1.PodRunning || got.ContainerStatuses[0].State.Terminated != nil {
		t.Errorf("%+v", got)
	}
	// The pod is gone, and its name is that of the next one.
	next := pod("u", corev1.PodPending, waits("i"), waits("a"), waits("b"))
	next.UID, next.DeletionTimestamp = "v", &metav1.Time{Time: at(5)}
	if got := podstatus.WithEnds(before, next); got.UID != before.UID || got.Status.Phase != corev1.PodFailed || !got.DeletionTimestamp.Equal(next.DeletionTimestamp) {
		t.Errorf("%+v", got)
	}
}

// TestAHeldPodHasAnAge: it has no sandbox that tells when it was created.
func TestAHeldPodHasAnAge(t *testing.T) {
	in := statusCase{change: func(in *podstatus.Input) {
		in.Sandbox, in.Held, in.Since = nil, &runner.Held{Reason: "OutOfcpu", Message: "m"}, at(7)
	}}.input("a")
	if p := podstatus.Of(in).Pod; !p.CreationTimestamp.Time.Equal(at(7)) || p.Status.StartTime != nil || p.Status.Reason != "OutOfcpu" {
		t.Errorf("created %s, started %v, %s", p.CreationTimestamp, p.Status.StartTime, p.Status.Reason)
	}
	in = statusCase{change: func(in *podstatus.Input) { in.Since = at(7) }}.input("a")
	if p := podstatus.Of(in).Pod; !p.CreationTimestamp.Time.Equal(at(0)) {
		t.Errorf("a pod with a sandbox was created with it, not at %s", p.CreationTimestamp)
	}
}
