package fields

import (
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ByPhase is the default: the row holds when the pod succeeds, and fails when it fails.
func ByPhase(s *Seen) Verdict {
	switch s.Phase() {
	case corev1.PodSucceeded:
		return Holds
	case corev1.PodFailed:
		return Fails
	}
	return Undecided
}

// Phase is that of the pod; empty without one.
func (s *Seen) Phase() corev1.PodPhase {
	if s.Pod == nil {
		return ""
	}
	return s.Pod.Status.Phase
}

// Status is that of a container, of any kind; empty when there is none.
func (s *Seen) Status(container string) corev1.ContainerStatus {
	if s.Pod != nil {
		for _, list := range [][]corev1.ContainerStatus{s.Pod.Status.InitContainerStatuses, s.Pod.Status.ContainerStatuses} {
			for _, c := range list {
				if c.Name == container {
					return c
				}
			}
		}
	}
	return corev1.ContainerStatus{}
}

// Waiting is the reason for which container c waits; empty when it does not.
func (s *Seen) Waiting() string {
	if w := s.Status("c").State.Waiting; w != nil {
		return w.Reason
	}
	return ""
}

// Ended is how container c ended; nil before.
func (s *Seen) Ended() *corev1.ContainerStateTerminated { return s.Status("c").State.Terminated }

// Ready says that the pod is.
func (s *Seen) Ready() bool {
	if s.Pod == nil {
		return false
	}
	for _, c := range s.Pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// File is what a file in Dir holds, without spaces around; empty when there is none.
func (s *Seen) File(name string) string {
	b, _ := os.ReadFile(filepath.Join(s.Dir, name))
	return strings.TrimSpace(string(b))
}

// when makes a Check of two conditions.
func when(holds, fails func(s *Seen) bool) func(s *Seen) Verdict {
	return func(s *Seen) Verdict {
		switch {
		case holds(s):
			return Holds
		case fails(s):
			return Fails
		}
		return Undecided
	}
}

// waits makes a condition: container c waits for this reason.
func waits(reason string) func(s *Seen) bool {
	return func(s *Seen) bool { return s.Waiting() == reason }
}

// verdict is Holds or Fails.
func verdict(holds bool) Verdict {
	if holds {
		return Holds
	}
	return Fails
}

// Has says that there is such a file in Dir.
func (s *Seen) Has(name string) bool {
	_, err := os.Stat(filepath.Join(s.Dir, name))
	return err == nil
}
