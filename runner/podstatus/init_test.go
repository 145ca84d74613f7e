package podstatus_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/runtimetest"
)

// initialized is a pod with the init container "setup", the sidecar "proxy" and the container "a".
func (c statusCase) initialized() podstatus.Input {
	in := c.input("a")
	in.Desired.Object.Spec.InitContainers = []corev1.Container{testContainer("setup", ""), runtimetest.NewSidecar("proxy", "")}
	return in
}

func TestAPodWaitsForItsInitContainers(t *testing.T) {
	done, proxy, a := exited("1", "setup", 0, 10), running("2", "proxy", 11), running("3", "a", 12)
	for name, tt := range map[string]struct {
		c     statusCase
		phase corev1.PodPhase
		// waits are the containers that are not complete yet; empty: the pod is Initialized, since a time.
		waits string
		since int
		why   string
	}{
		"nothing yet":          {statusCase{}, corev1.PodPending, "setup proxy", 0, "init container setup: being created"},
		"the first runs":       {statusCase{instances: []runner.Container{running("1", "setup", 1)}}, corev1.PodPending, "setup proxy", 0, "init container setup: running before the others"},
		"the first is retried": {statusCase{instances: []runner.Container{exited("1", "setup", 1, 99)}}, corev1.PodPending, "setup proxy", 0, "init container setup: exited with 1 (Error), to be restarted at"},
		"the first has failed for good": {
			statusCase{policy: "Never", instances: []runner.Container{exited("1", "setup", 1, 99)}},
			corev1.PodFailed, "setup proxy", 0, "init container setup: exited with 1 (Error), not restarted by restart policy Never",
		},
		"the sidecar is missing": {statusCase{instances: []runner.Container{done}}, corev1.PodPending, "proxy", 10, "init container proxy: being created"},
		"both are done":          {statusCase{instances: []runner.Container{done, proxy}}, corev1.PodPending, "", 10, "container a: being created"},
		"all run":                {statusCase{instances: []runner.Container{done, proxy, a}}, corev1.PodRunning, "", 10, ""},
		"the sidecar is restarted beside what it has let begin": {
			statusCase{instances: []runner.Container{done, exited("2", "proxy", 1, 99), a}},
			corev1.PodRunning, "", 10, "init container proxy: exited with 1",
		},
		"they were done in an earlier sandbox": {
			statusCase{instances: []runner.Container{with(done, func(c *runner.Container) { c.SandboxID = "old" })}},
			corev1.PodPending, "setup proxy", 0, "init container setup: being created",
		},
		"only the sidecar runs on": {
			statusCase{policy: "Never", instances: []runner.Container{done, proxy, exited("3", "a", 0, 90)}},
			corev1.PodRunning, "", 10, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := podstatus.Of(tt.c.initialized())
			if s.Pod.Status.Phase != tt.phase || !strings.HasPrefix(s.Why, tt.why) || tt.why == "" && s.Why != "" {
				t.Errorf("%s: %q", s.Pod.Status.Phase, s.Why)
			}
			c := conditionsOf(s.Pod)[corev1.PodInitialized]
			message := ""
			if tt.waits != "" {
				message = "containers with incomplete status: [" + tt.waits + "]"
			}
			if (c.Status == corev1.ConditionTrue) != (tt.waits == "") || c.Message != message || !c.LastTransitionTime.Equal(ptrTime(at(tt.since))) {
				t.Errorf("Initialized: %+v", c)
			}
		})
	}
}

func TestStatusesOfInitContainers(t *testing.T) {
	old := with(exited("0", "setup", 3, 5), func(c *runner.Container) { c.SandboxID = "old" })
	in := statusCase{instances: []runner.Container{old, created("1", "setup")}}.initialized()
	st := podstatus.Of(in).Pod.Status
	setup, proxy, a := st.InitContainerStatuses[0], st.InitContainerStatuses[1], st.ContainerStatuses[0]
	if setup.State.Waiting == nil || setup.ContainerID != "containerd://1" || setup.Ready || setup.LastTerminationState.Terminated == nil || setup.LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("setup is about to start, after one of the last sandbox failed: %+v", setup)
	}
	for _, c := range []corev1.ContainerStatus{setup, proxy, a} {
		if c.State.Waiting == nil || c.State.Waiting.Reason != "PodInitializing" {
			t.Errorf("%s: %+v", c.Name, c.State)
		}
	}
	in = statusCase{instances: []runner.Container{exited("1", "setup", 0, 10), running("2", "proxy", 11), running("3", "a", 12)}}.initialized()
	st = podstatus.Of(in).Pod.Status
	if !st.InitContainerStatuses[0].Ready || !st.InitContainerStatuses[1].Ready {
		t.Errorf("both are ready: %+v", st.InitContainerStatuses)
	}
	if last := st.InitContainerStatuses[0].LastTerminationState; last != (corev1.ContainerState{}) {
		t.Errorf("setup has run once, and nothing before: %+v", last.Terminated)
	}
	// A sidecar counts for the readiness of the pod.
	in.Desired.Object.Spec.InitContainers[1].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
	if c := conditionsOf(podstatus.Of(in).Pod)[corev1.PodReady]; c.Message != "containers with unready status: [proxy]" {
		t.Errorf("%+v", c)
	}
}
