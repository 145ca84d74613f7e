package container

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMessagesOfAPodShareItsLimit(t *testing.T) {
	for n, want := range map[int]int{1: 4096, 3: 4096, 4: 3072, 12: 1024} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, n)}}
		if got := messageLimit(pod); got != want {
			t.Errorf("%d containers: limit %d, want %d", n, got, want)
		}
	}
}
