package model

import (
	"time"

	"monopod/internal/cause"
)

// Probe is the state of one probe of a running container. Times are in UTC, truncated to seconds.
type Probe struct {
	Container string `json:"container"`
	// Kind is Startup, Liveness or Readiness.
	Kind string `json:"kind"`
	// Result is the result after applying thresholds: Success, Failure or Unknown.
	Result string `json:"result"`
	// Failures is the number of consecutive failed attempts; the probe fails when it reaches Threshold.
	Failures  int `json:"failures,omitempty"`
	Threshold int `json:"threshold"`
	// Output is the output of the latest attempt; empty if it succeeded.
	Output string `json:"output,omitempty"`
	// Fault classifies the failure of the latest attempt, if known.
	Fault cause.Fault `json:"fault,omitempty"`
	// Last is the time of the latest attempt, Next that of the next one; zero means never.
	Last time.Time `json:"last,omitzero"`
	Next time.Time `json:"next,omitzero"`
	// Counts counts all attempts since this agent started to probe the container.
	Counts ProbeCounts `json:"-"`
}

// ProbeCounts count the attempts of a probe by result.
type ProbeCounts struct {
	Successful, Failed, Unknown uint64
	// Buckets count the attempts that did not fail, by ProbeBounds. Each attempt is in the first bucket that it fits.
	Buckets [11]uint32
	// Took is the total duration of the attempts that did not fail.
	Took time.Duration
}

// ProbeBounds are the upper bounds of ProbeCounts.Buckets in seconds, the same as in the kubelet.
func ProbeBounds() [11]float64 {
	return [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}
