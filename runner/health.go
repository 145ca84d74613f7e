package runner

import "time"

// Health is what the probes of an instance last said, as it is on its record. The zero Health: they have said nothing.
type Health struct {
	Started bool `json:"started"`
	Ready   bool `json:"ready"`
	// Since is when that was put on record.
	Since time.Time `json:"since,omitzero"`
}

// String is how a Health is written in logs.
func (h Health) String() string {
	switch {
	case h.Ready:
		return "ready"
	case h.Started:
		return "started, not ready"
	}
	return "not started"
}
