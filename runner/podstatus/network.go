package podstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
)

// networked returns the condition that containers can be started in the pod, or, as a kubelet does, what is missing.
func (s *statusBuilder) networked(created time.Time) corev1.PodCondition {
	missing := ""
	switch {
	case s.Sandbox == nil:
		missing = "no pod sandbox exists"
	case !s.Sandbox.Alive:
		missing = "pod sandbox is not ready"
	case s.Sandbox.Network != runner.NetworkReady:
		missing = "pod sandbox has no IP address"
	}
	c := condition(corev1.PodReadyToStartContainers, missing == "", created)
	if missing != "" {
		c.Reason, c.Message = "PodSandboxNotReady", missing
	}
	return c
}
