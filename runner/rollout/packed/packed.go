// Package packed keeps the manifests of revisions in little memory.
//
// It owns how a manifest is kept; it must not know revisions. It starts no goroutines.
package packed

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

// Of returns the manifest of a Pod, which must not be changed.
func Of(pod *corev1.Pod) Manifest { return Manifest{object: pod} }

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

// Is reports whether the manifest is this very Pod.
func (m Manifest) Is(pod *corev1.Pod) bool { return m.object == pod }

// Equal reports whether both are the same as JSON.
func (m Manifest) Equal(o Manifest) bool { return bytes.Equal(m.JSON(), o.JSON()) }

// Size is the number of bytes of its JSON, or of what that is compressed to; 0 if it is a Pod.
func (m Manifest) Size() int { return len(m.text) }

// Pod returns the Pod, which must not be changed.
func (m Manifest) Pod() (*corev1.Pod, error) {
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

// Packer compresses manifests. The zero Packer is ready for use, by one goroutine at a time. It uses much memory, so it is not kept.
type Packer struct{ flate *flate.Writer }

// Pack compresses a manifest, unless it is compressed.
func (p *Packer) Pack(m Manifest) Manifest {
	if m.packed() {
		return m
	}
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
