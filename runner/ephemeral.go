package runner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// MaxEphemeral is the maximum number of ephemeral containers of a pod: they can be added, but not removed.
const MaxEphemeral = 16

// EphemeralOf returns the ephemeral containers of the sandbox for a pod with this spec. If an edit of the manifest has added a container
// with the same name, the name refers to that container.
func (s *Sandbox) EphemeralOf(spec *corev1.PodSpec) []corev1.EphemeralContainer {
	if s == nil || len(s.Ephemeral) == 0 {
		return nil
	}
	taken := func(e corev1.EphemeralContainer) bool {
		for c := range manifests.AllContainers(spec) {
			if c.Name == e.Name {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(s.Ephemeral, taken) {
		return s.Ephemeral
	}
	return slices.DeleteFunc(slices.Clone(s.Ephemeral), taken)
}

// AddEphemeral returns all plus those of add whose names are new.
func AddEphemeral(all, add []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	all = slices.Clone(all)
	for i := range add {
		if !slices.ContainsFunc(all, func(e corev1.EphemeralContainer) bool { return e.Name == add[i].Name }) {
			all = append(all, add[i])
		}
	}
	return all
}

// SplitEphemeral returns the instances of ephemeral containers, and all others, each in their order.
func SplitEphemeral(all []Container, ephemeral []corev1.EphemeralContainer) (debug, others []Container) {
	if len(ephemeral) == 0 {
		return nil, all
	}
	for _, c := range all {
		if slices.ContainsFunc(ephemeral, func(e corev1.EphemeralContainer) bool { return e.Name == c.Name }) {
			debug = append(debug, c)
		} else {
			others = append(others, c)
		}
	}
	return debug, others
}
