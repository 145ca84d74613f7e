package stream_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/stream"
)

func TestAnEphemeralContainerThatRunsIsFound(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Status: corev1.PodStatus{EphemeralContainerStatuses: []corev1.ContainerStatus{
		{Name: "dbg", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "ended", ContainerID: "containerd://2", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}}}
	for name, want := range map[string]string{"dbg": "1", "ended": "", "other": ""} {
		if got := stream.RunningID(pod, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
