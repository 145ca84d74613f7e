package runner

import "time"

// Health is the recorded result of an instance's probes. It is zero until a probe has a result.
type Health struct {
	Started bool `json:"started"`
	Ready   bool `json:"ready"`
	// Since is the time of the probe result that Started and Ready follow from.
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
