package podhash

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Resources covers what Container leaves out because it can be changed while the container runs: its cpu and
// memory, and those of the pod, which stand in for missing limits. It is empty for a container that the pod does not have.
func Resources(p *corev1.Pod, container string) string {
	c := manifests.FindContainer(&p.Spec, container)
	if c == nil {
		return ""
	}
	return Of(resourceParts{Container: manifests.Resizable(c.Resources), Pod: manifests.PodResizable(&p.Spec)})
}

// PodResources covers all that the cgroup of a pod follows from.
func PodResources(p *corev1.Pod) string {
	return Of(podResourceParts{
		Class:     manifests.QOSClass(p),
		Requests:  manifests.PodRequests(&p.Spec),
		Limits:    manifests.PodLimits(&p.Spec),
		AllCPU:    manifests.AllLimited(&p.Spec, corev1.ResourceCPU),
		AllMemory: manifests.AllLimited(&p.Spec, corev1.ResourceMemory),
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
