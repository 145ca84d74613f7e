package retry

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// Role is the kind of a container in its pod.
type Role int

const (
	// Regular is a container of spec.containers.
	Regular Role = iota
	// Initial is an init container that runs to completion.
	Initial
	// Sidecar is an init container that runs alongside the regular ones.
	Sidecar
)

// RoleIn returns the role of a container. Unknown containers count as regular.
func RoleIn(spec *corev1.PodSpec, name string) Role {
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == name {
			if manifests.IsSidecar(c) {
				return Sidecar
			}
			return Initial
		}
	}
	return Regular
}

// Succeeded reports whether an init container has completed successfully.
func Succeeded(c *runner.Container) bool {
	return c.State == runner.ContainerExited && !c.Leaving() && c.Exit != nil && c.Exit.ExitCode == 0 && c.Exit.Reason != runner.ReasonOOMKilled
}
