// Package fit compares what runs with a manifest: whether it can stay, or must be replaced.
//
// It is pure. It must not decide when something is replaced, which is the task of runner/plan.
package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
)

// Sandbox reports whether a sandbox matches a pod, including the QoS class of its cgroup; otherwise the whole pod must be recreated.
func Sandbox(h *podhash.Cache, pod *manifests.Pod, s *runner.Sandbox) bool {
	return s.Hash == h.Sandbox(pod) && (s.QOSClass == "" || s.QOSClass == manifests.QOSClass(pod.Object))
}

// Made reports whether the instance was made from the container's definition in pod.
func Made(h *podhash.Cache, pod *manifests.Pod, c *runner.Container) bool {
	return ranWith(pod, c) && c.Hash == h.Container(pod, c.Name)
}

// ranWith reports whether an instance was created from the images whose digests the manifest specifies, as far as is known.
func ranWith(pod *manifests.Pod, c *runner.Container) bool {
	if len(pod.Images) == 0 {
		return true
	}
	same := func(key, digest string) bool {
		want := pod.Images[key]
		return want == "" || digest == "" || want == digest
	}
	for volume, digest := range c.VolumeImages {
		if !same(manifests.ImageVolume(volume), digest) {
			return false
		}
	}
	return same(c.Name, c.ImageDigest)
}

// Sized reports whether the instance has the desired resources, or its resources are unknown.
func Sized(h *podhash.Cache, pod *manifests.Pod, c *runner.Container) bool {
	return c.ResourcesHash == "" || c.ResourcesHash == h.Resources(pod, c.Name)
}

// Outgrown reports whether the instance must be recreated to get the desired resources.
func Outgrown(h *podhash.Cache, pod *manifests.Pod, c *runner.Container) bool {
	if Sized(h, pod, c) {
		return false
	}
	switch c.State {
	case runner.ContainerCreated:
		return true
	case runner.ContainerRunning:
		return resizeRestarts(&pod.Object.Spec, c)
	}
	return false
}

// resizeRestarts reports whether one of the resources that differ must not be changed while the container runs. As with a kubelet, limits
// are those in effect: a container without one has that of the pod as a whole.
func resizeRestarts(pod *corev1.PodSpec, c *runner.Container) bool {
	spec := manifests.FindContainer(pod, c.Name)
	if spec == nil || c.Resources == nil {
		return false
	}
	wants := manifests.PodResizable(pod)
	has := &wants // if unknown
	if c.PodResources != nil {
		has = c.PodResources
	}
	return slices.ContainsFunc(spec.ResizePolicy, func(r corev1.ContainerResizePolicy) bool {
		return r.RestartPolicy == corev1.RestartContainer && (!sameAmount(spec.Resources.Requests, c.Resources.Requests, r.ResourceName) ||
			!sameAmount(orPods(spec.Resources.Limits, wants.Limits, r.ResourceName), orPods(c.Resources.Limits, has.Limits, r.ResourceName), r.ResourceName))
	})
}

// orPods returns the limits of a container, or those of its pod if the container itself is not limited.
func orPods(own, pod corev1.ResourceList, name corev1.ResourceName) corev1.ResourceList {
	q, whole := own[name], pod[name]
	if q.IsZero() && !whole.IsZero() {
		return pod
	}
	return own
}

func sameAmount(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, inA := a[name]
	y, inB := b[name]
	return inA == inB && x.Cmp(y) == 0
}

// Replaced reports what an edit of the manifest of a running pod replaces: the whole pod, or else the containers that exist before and after it,
// in the order of the manifest.
func Replaced(was, now *manifests.Pod) (pod bool, containers []string) {
	h := &podhash.Cache{}
	if !Sandbox(h, now, &runner.Sandbox{Hash: h.Sandbox(was), QOSClass: manifests.QOSClass(was.Object)}) {
		return true, nil
	}
	for c := range manifests.LongRunningContainers(&was.Object.Spec) {
		runs := &runner.Container{
			Name: c.Name, State: runner.ContainerRunning, Hash: h.Container(was, c.Name), ResourcesHash: h.Resources(was, c.Name),
			Resources: new(manifests.Resizable(c.Resources)), PodResources: new(manifests.PodResizable(&was.Object.Spec)),
		}
		stays := manifests.FindContainer(&now.Object.Spec, c.Name) != nil
		if stays && (!Made(h, now, runs) || Outgrown(h, now, runs)) {
			containers = append(containers, c.Name)
		}
	}
	return false, containers
}
