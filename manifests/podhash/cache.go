package podhash

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Cache holds the hashes of the few manifests that one worker deals with, by their address: manifests are immutable, and a hash costs
// more than the rest of a plan. A nil *Cache caches nothing. It belongs to one goroutine.
type Cache struct {
	pods []*podHashes
}

type podHashes struct {
	of                      *manifests.Pod
	pod, sandbox, resources string
	containers              []containerHash
}

type containerHash struct{ kind, name, hash string }

// maxHashes is the number of manifests that a worker deals with at a time: the desired and the recorded one, and the next of each.
const maxHashes = 4

func (h *Cache) of(pod *manifests.Pod) *podHashes {
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

// Pod returns Pod of a manifest.
func (h *Cache) Pod(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.pod == "" {
		m.pod = Pod(pod.Object)
	}
	return m.pod
}

// Sandbox returns Sandbox of a manifest.
func (h *Cache) Sandbox(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.sandbox == "" {
		m.sandbox = Sandbox(pod.Object)
	}
	return m.sandbox
}

// PodResources returns PodResources of a manifest.
func (h *Cache) PodResources(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.resources == "" {
		m.resources = PodResources(pod.Object)
	}
	return m.resources
}

// Container returns Container of a manifest; empty if the pod has no such container.
func (h *Cache) Container(pod *manifests.Pod, name string) string {
	return h.ofContainer(pod, name, "definition", Container)
}

// Resources returns Resources of a manifest.
func (h *Cache) Resources(pod *manifests.Pod, name string) string {
	return h.ofContainer(pod, name, "resources", Resources)
}

func (h *Cache) ofContainer(pod *manifests.Pod, name, kind string, compute func(*corev1.Pod, string) string) string {
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
