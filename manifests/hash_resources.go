package manifests

import (
	corev1 "k8s.io/api/core/v1"
)

// FormerContainerHash is what ContainerHash was in the release that could not change cpu and memory of a running
// container: they are in it. Containers of that release are known by it.
func FormerContainerHash(p *corev1.Pod, container string) string {
	return containerHash(p, container, func(*corev1.Container) {})
}

// ResourcesHash covers what ContainerHash leaves out because it can be changed while the container runs: its cpu and
// memory, and those of the pod, which stand in for missing limits. It is empty for a container that the pod does not have.
func ResourcesHash(p *corev1.Pod, container string) string {
	c := FindContainer(&p.Spec, container)
	if c == nil {
		return ""
	}
	return hash(resourceParts{Container: Resizable(c.Resources), Pod: podResizable(&p.Spec)})
}

// PodResourcesHash covers all that the cgroup of a pod follows from.
func PodResourcesHash(p *corev1.Pod) string {
	return hash(podResourceParts{
		Class:     QOSClass(p),
		Requests:  PodRequests(&p.Spec),
		Limits:    PodLimits(&p.Spec),
		AllCPU:    AllLimited(&p.Spec, corev1.ResourceCPU),
		AllMemory: AllLimited(&p.Spec, corev1.ResourceMemory),
		Overhead:  p.Spec.Overhead,
	})
}

type resourceParts struct {
	Container corev1.ResourceRequirements `json:"container"`
	Pod       corev1.ResourceRequirements `json:"pod"`
}

type podResourceParts struct {
	Class     corev1.PodQOSClass  `json:"class"`
	Requests  corev1.ResourceList `json:"requests"`
	Limits    corev1.ResourceList `json:"limits"`
	AllCPU    bool                `json:"allCPU"`
	AllMemory bool                `json:"allMemory"`
	Overhead  corev1.ResourceList `json:"overhead"`
}

// Resizable returns the part of a container's resources that can be changed while it runs. It shares what it can with r: pods
// are immutable.
func Resizable(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: resizable(r.Limits), Requests: resizable(r.Requests)}
}

func podResizable(spec *corev1.PodSpec) corev1.ResourceRequirements {
	if spec.Resources == nil {
		return corev1.ResourceRequirements{}
	}
	return Resizable(*spec.Resources)
}

func resizable(list corev1.ResourceList) corev1.ResourceList {
	cpu, hasCPU := list[corev1.ResourceCPU]
	memory, hasMemory := list[corev1.ResourceMemory]
	there := 0
	for _, has := range []bool{hasCPU, hasMemory} {
		if has {
			there++
		}
	}
	switch {
	case there == 0:
		return nil
	case there == len(list):
		return list
	case there == 2:
		return corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
	case hasCPU:
		return corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	return corev1.ResourceList{corev1.ResourceMemory: memory}
}

// dropResizable takes cpu and memory out of a container's resources.
func dropResizable(c *corev1.Container) {
	c.Resources.Limits = withoutResizable(c.Resources.Limits)
	c.Resources.Requests = withoutResizable(c.Resources.Requests)
}

func withoutResizable(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			out[name] = q
		}
	}
	return out
}
