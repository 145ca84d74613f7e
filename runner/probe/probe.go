// Package probe runs the probes of containers: a command in the container, or HTTP, TCP or gRPC from the host.
//
// State is the pure core: it counts outcomes against thresholds and says when to ask next. A Watch is the three
// probes of one running container: the startup probe goes first, the other two begin when it has succeeded. The
// package decides nothing about the container; who started the Watch is told when its Health changes. It must not
// know pods, containerd or the runner.
//
// Goroutines: one for each attempt under way. Between attempts a probe is a timer. Watch.Stop ends both; with the
// Group given to it one can wait for them.
package probe

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

// Kind is the purpose of a probe.
type Kind string

// The kinds, as they are written in messages.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Result is how one attempt ended, or what a probe has come to.
type Result string

// Results.
const (
	// Unknown: not asked yet. A startup probe begins with it.
	Unknown Result = "Unknown"
	Success Result = "Success"
	// Warning counts as success; what it says is worth a line in the log.
	Warning Result = "Warning"
	Failure Result = "Failure"
	// Errored: the question could not be asked. It counts neither way.
	Errored Result = "Errored"
)

// Outcome is one attempt's result and what it said.
type Outcome struct {
	Result Result
	Output string
	// Fault is what a failure stands for, as far as that is known.
	Fault cause.Fault
}

// outputLimit is the number of bytes of an answer that are read.
const outputLimit = 10 << 10

// Config is when a probe asks, and what makes it change its mind.
type Config struct {
	Kind                               Kind
	InitialDelay, Period, Timeout      time.Duration
	SuccessThreshold, FailureThreshold int
}

// configOf reads a probe of a manifest. Zero values, which validation lets pass, mean the defaults.
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
