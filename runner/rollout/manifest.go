package rollout

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"

	corev1 "k8s.io/api/core/v1"
)

// Manifest is a defaulted v1 Pod: either an object that exists anyway, or its JSON, plain or compressed. The manifest of a revision that is
// neither active nor wanted is kept only for a manual rollback. Outside of this process it is always JSON.
type Manifest struct {
	object *corev1.Pod
	// text is empty if object is set.
	text []byte
}

// packedMark is the first byte of compressed JSON. Plain JSON never begins with it.
const packedMark = 0

// JSON returns the manifest as JSON.
func (m Manifest) JSON() []byte {
	switch {
	case m.object != nil:
		b, _ := json.Marshal(m.object) // it contains only what was written and defaults; an accepted pod always encodes
		return b
	case !m.packed():
		return m.text
	}
	text, _ := io.ReadAll(flate.NewReader(bytes.NewReader(m.text[1:]))) // it was compressed by this process, in memory
	return text
}

func (m Manifest) packed() bool { return len(m.text) > 0 && m.text[0] == packedMark }

// pod returns the Pod, which must not be changed.
func (m Manifest) pod() (*corev1.Pod, error) {
	if m.object != nil {
		return m.object, nil
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal(m.JSON(), pod)
}

// MarshalJSON implements json.Marshaler.
func (m Manifest) MarshalJSON() ([]byte, error) {
	if text := m.JSON(); len(text) > 0 {
		return text, nil
	}
	return []byte("null"), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Manifest) UnmarshalJSON(b []byte) error {
	*m = Manifest{text: bytes.Clone(b)}
	return nil
}

// packer compresses manifests. The zero packer is ready for use, by one goroutine at a time. It uses much memory, so it is not kept.
type packer struct{ flate *flate.Writer }

// pack compresses the manifests of the revisions of an unpublished state that are neither active nor wanted.
func (p *packer) pack(s *State) {
	for i := range s.Revisions {
		if r := &s.Revisions[i]; r.Number != s.Active && r.Number != s.Wanted && !r.Manifest.packed() {
			r.Manifest = p.packed(r.Manifest)
		}
	}
}

func (p *packer) packed(m Manifest) Manifest {
	var b bytes.Buffer
	b.WriteByte(packedMark)
	if p.flate == nil {
		p.flate, _ = flate.NewWriter(&b, flate.BestSpeed) // the level is valid
	} else {
		p.flate.Reset(&b)
	}
	_, _ = p.flate.Write(m.JSON()) // a buffer never fails
	_ = p.flate.Close()
	return Manifest{text: bytes.Clone(b.Bytes())}
}

// shared returns a state whose wanted revision uses the given pod itself if both are equal, so that the pod from disk and the pod from the
// source share memory. The original state is not changed.
func (s *State) shared(pod *corev1.Pod, hash string) *State {
	r := s.Revision(s.Wanted)
	if r == nil || r.Hash != hash || r.Manifest.object == pod {
		return s
	}
	s = s.clone()
	s.Revision(s.Wanted).Manifest = Manifest{object: pod}
	return s
}
