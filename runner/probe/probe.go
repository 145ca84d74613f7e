// Package probe runs the probes of containers: a command in the container, or HTTP, TCP or gRPC from the host.
//
// State is pure: it counts outcomes against thresholds and returns when to probe next. A Watch runs the three probes of one running
// container: the startup probe first, the other two once it has succeeded. The package must not decide anything about the container, nor
// know pods, containerd or the runner; the caller is notified when Health changes.
//
// Goroutines: one for each attempt in progress. Between attempts a probe is a timer. Watch.Stop ends both; the Group in Options waits for
// them.
package probe

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner/httpget"
)

// Kind is the kind of a probe.
type Kind string

// Kinds of probes, as written in messages.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Result is the result of one attempt, or of a probe after thresholds.
type Result string

// Results.
const (
	// Unknown means that there is no result yet. It is the initial result of a startup probe.
	Unknown Result = "Unknown"
	Success Result = "Success"
	// Warning counts as success; its output is logged.
	Warning Result = "Warning"
	Failure Result = "Failure"
	// Errored means that the request could not be made. It counts neither as success nor as failure.
	Errored Result = "Errored"
)

// Outcome is the result and the output of one attempt.
type Outcome struct {
	Result Result
	Output string
	// Fault classifies a failure, if known.
	Fault cause.Fault
}

// outputLimit is the number of bytes of an answer that are read.
const outputLimit = httpget.BodyLimit

// Config is the schedule and the thresholds of a probe.
type Config struct {
	Kind                               Kind
	InitialDelay, Period, Timeout      time.Duration
	SuccessThreshold, FailureThreshold int
}

// configOf reads a probe of a manifest. Zero values, which validation accepts, mean the defaults.
func configOf(kind Kind, p *corev1.Probe) Config {
	seconds := func(n, or int32) time.Duration {
		if n <= 0 {
			n = or
		}
		return time.Duration(n) * time.Second
	}
	return Config{
		Kind:             kind,
		InitialDelay:     seconds(p.InitialDelaySeconds, 0),
		Period:           seconds(p.PeriodSeconds, 10),
		Timeout:          seconds(p.TimeoutSeconds, 1),
		SuccessThreshold: max(1, int(p.SuccessThreshold)),
		FailureThreshold: max(1, int(p.FailureThreshold)),
	}
}
