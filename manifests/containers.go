package manifests

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// UserIDs is how many user and group ids a pod with hostUsers: false has, from 0.
const UserIDs = 65536

// IsSidecar reports whether an init container keeps running beside the regular containers: restartPolicy Always.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// AllContainers yields the containers of a pod in the order in which they start: init containers, then the others.
func AllContainers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// LongRunningContainers yields the containers that stay: sidecars, then regular ones.
func LongRunningContainers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range spec.InitContainers {
			if c := &spec.InitContainers[i]; IsSidecar(c) && !yield(c) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
	}
}

// FindContainer returns a container's definition, of whatever kind; nil when the pod has none of that name.
func FindContainer(spec *corev1.PodSpec, name string) *corev1.Container {
	for c := range AllContainers(spec) {
		if c.Name == name {
			return c
		}
	}
	if e := FindEphemeral(spec, name); e != nil {
		return AsContainer(e)
	}
	return nil
}

// FindEphemeral returns the definition of an ephemeral container, nil if the pod has none of that name.
func FindEphemeral(spec *corev1.PodSpec, name string) *corev1.EphemeralContainer {
	for i := range spec.EphemeralContainers {
		if e := &spec.EphemeralContainers[i]; e.Name == name {
			return e
		}
	}
	return nil
}

// AsContainer converts the definition of an ephemeral container to a Container. Both share memory.
func AsContainer(e *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&e.EphemeralContainerCommon)
}

// WithEphemeral returns a copy of the pod with these ephemeral containers, which manifests never have. It shares everything else with pod.
func WithEphemeral(pod *Pod, all []corev1.EphemeralContainer) *Pod {
	p, object := *pod, *pod.Object
	object.Spec.EphemeralContainers = all
	p.Object = &object
	return &p
}

// UsesVolume reports whether a container mounts a volume, or has it as a device.
func UsesVolume(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name }) ||
		slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == name })
}
