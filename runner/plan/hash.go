package plan

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
)

// Hashes remembers the hashes of manifests, which are immutable, by their address: computing one costs more
// than all the rest of a plan. A nil *hashes remembers nothing.
type Hashes struct {
	pods []*podHashes
}

type podHashes struct {
	of                      *manifests.Pod
	pod, sandbox, resources string
	containers              []containerHash
}

type containerHash struct{ kind, name, hash string }

// maxHashes is how many manifests a worker deals with at a time: the desired one, the recorded one, and the
// next of each.
const maxHashes = 4

func (h *Hashes) of(pod *manifests.Pod) *podHashes {
	if h == nil {
		return &podHashes{}
	}
	for _, m := range h.pods {
		if m.of == pod {
			return m
		}
	}
	if len(h.pods) >= maxHashes {
		h.pods = nil
	}
	m := &podHashes{of: pod}
	h.pods = append(h.pods, m)
	return m
}

// PodHash is podhash.Pod of a manifest.
func (h *Hashes) PodHash(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.pod == "" {
		m.pod = podhash.Pod(pod.Object)
	}
	return m.pod
}

func (h *Hashes) sandbox(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.sandbox == "" {
		m.sandbox = podhash.Sandbox(pod.Object)
	}
	return m.sandbox
}

func (h *Hashes) podResources(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.resources == "" {
		m.resources = podhash.PodResources(pod.Object)
	}
	return m.resources
}

// container is empty when the pod has no such container.
func (h *Hashes) container(pod *manifests.Pod, name string) string {
	return h.ofContainer(pod, name, "definition", podhash.Container)
}

func (h *Hashes) resources(pod *manifests.Pod, name string) string {
	return h.ofContainer(pod, name, "resources", podhash.Resources)
}

func (h *Hashes) ofContainer(pod *manifests.Pod, name, kind string, compute func(*corev1.Pod, string) string) string {
	m := h.of(pod)
	for _, c := range m.containers {
		if c.name == name && c.kind == kind {
			return c.hash
		}
	}
	hash := compute(pod.Object, name)
	m.containers = append(m.containers, containerHash{kind, name, hash})
	return hash
}
