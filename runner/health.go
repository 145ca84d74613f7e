package runner

import "time"

// Health is the latest result of the probes of an instance, as stored on its record. The zero Health means that there is no result yet.
type Health struct {
	Started bool `json:"started"`
	Ready   bool `json:"ready"`
	// Since is the time of the probe result that Started and Ready follow from.
	Since time.Time `json:"since,omitzero"`
}

// String returns the form that is used in logs.
func (h Health) String() string {
	switch {
	case h.Ready:
		return "ready"
	case h.Started:
		return "started, not ready"
	}
	return "not started"
}
