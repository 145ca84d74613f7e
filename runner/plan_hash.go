package runner

import "monopod/manifests"

// hashes remembers the hashes of manifests, which are immutable, by their address: computing one costs more
// than all the rest of a plan. A nil *hashes remembers nothing.
type hashes struct {
	pods map[*manifests.Pod]*podHashes
}

type podHashes struct {
	pod, sandbox string
	containers   map[string]string
}

// maxHashes is how many manifests a worker deals with at a time: the desired one, the recorded one, and the
// next of each.
const maxHashes = 4

func (h *hashes) of(pod *manifests.Pod) *podHashes {
	if h == nil {
		return &podHashes{containers: map[string]string{}}
	}
	if m, ok := h.pods[pod]; ok {
		return m
	}
	if h.pods == nil || len(h.pods) >= maxHashes {
		h.pods = map[*manifests.Pod]*podHashes{}
	}
	m := &podHashes{containers: map[string]string{}}
	h.pods[pod] = m
	return m
}

func (h *hashes) podHash(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.pod == "" {
		m.pod = manifests.PodHash(pod.Object)
	}
	return m.pod
}

func (h *hashes) sandbox(pod *manifests.Pod) string {
	m := h.of(pod)
	if m.sandbox == "" {
		m.sandbox = manifests.SandboxHash(pod.Object)
	}
	return m.sandbox
}

// container is empty when the pod has no such container.
func (h *hashes) container(pod *manifests.Pod, name string) string {
	m := h.of(pod)
	hash, ok := m.containers[name]
	if !ok {
		hash = manifests.ContainerHash(pod.Object, name)
		m.containers[name] = hash
	}
	return hash
}
