package rollout

import (
	"bytes"
	"compress/flate"
	"io"
)

// Manifest is the JSON of a defaulted v1 Pod, as it is or packed: that of a revision which is neither active nor wanted
// only lies in memory until a person asks for it. Outside of this process it is always JSON.
type Manifest []byte

// packedMark begins what is packed. No JSON begins so.
const packedMark = 0

// JSON returns the text.
func (m Manifest) JSON() []byte {
	if len(m) == 0 || m[0] != packedMark {
		return m
	}
	text, _ := io.ReadAll(flate.NewReader(bytes.NewReader(m[1:]))) // it was packed here, and is in memory
	return text
}

// MarshalJSON implements json.Marshaler.
func (m Manifest) MarshalJSON() ([]byte, error) {
	if len(m) == 0 {
		return []byte("null"), nil
	}
	return m.JSON(), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Manifest) UnmarshalJSON(b []byte) error {
	*m = bytes.Clone(b)
	return nil
}

// packer packs manifests. The zero packer is ready; one goroutine at a time may use it. It has a large memory, so it is not kept.
type packer struct{ flate *flate.Writer }

// pack packs the manifests of the revisions of a state, which nobody else has yet, that are neither active nor wanted.
func (p *packer) pack(s *State) {
	for i := range s.Revisions {
		if r := &s.Revisions[i]; r.Number != s.Active && r.Number != s.Wanted && len(r.Manifest) > 0 && r.Manifest[0] != packedMark {
			r.Manifest = p.packed(r.Manifest)
		}
	}
}

func (p *packer) packed(m Manifest) Manifest {
	var b bytes.Buffer
	b.WriteByte(packedMark)
	if p.flate == nil {
		p.flate, _ = flate.NewWriter(&b, flate.BestSpeed) // the level is a valid one
	} else {
		p.flate.Reset(&b)
	}
	_, _ = p.flate.Write(m) // a buffer takes everything
	_ = p.flate.Close()
	return bytes.Clone(b.Bytes())
}
