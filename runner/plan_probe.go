package runner

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/probe"
)

// Planning of what probes found out. They are asked in the background (see worker_probe.go); what they say is in
// Observed.Probes, and a change of it wakes the worker:
//
//	startup or liveness probe has failed:  StopContainer for that cause, then the restart policy
//	started, or ready, has changed:        RecordHealth, so that the next agent knows it from the start

// Health is what the probes of an instance last said, as it is on its record. The zero Health: they have said nothing.
type Health struct {
	Started bool `json:"started"`
	Ready   bool `json:"ready"`
	// Since is when that was put on record.
	Since time.Time `json:"since,omitzero"`
}

// Started says that a container is as far as those that come after it wait for: it runs, its postStart hook has
// succeeded, and its startup probe as well.
func (o *Observed) Started(spec *corev1.Container, c *Container) bool {
	if c.State != ContainerRunning || c.PostStart == PostStartPending {
		return false
	}
	if spec == nil || spec.StartupProbe == nil {
		return true
	}
	if h, ok := o.Probes[c.ID]; ok {
		return h.Started
	}
	return c.Health.Started
}

// Ready says that a container can be used: it has started, and its readiness probe does not say otherwise.
func (o *Observed) Ready(spec *corev1.Container, c *Container) bool {
	if !o.Started(spec, c) {
		return false
	}
	if spec == nil || spec.ReadinessProbe == nil {
		return true
	}
	if h, ok := o.Probes[c.ID]; ok {
		return h.Ready
	}
	return c.Health.Ready
}

// probes sees to what the probes of an instance that runs say.
func (p *planner) probes(c *Container) {
	h, ok := p.o.Probes[c.ID]
	if !ok || c.State != ContainerRunning || p.blocked(instanceKey(c.ID)) {
		return
	}
	if h.Failed != nil && !c.leaving() {
		p.stopFor(c, causeOf(h.Failed.Kind), unhealthy(h.Failed))
		return
	}
	spec := containerSpec(p.pod, c.Name)
	if spec == nil || spec.StartupProbe == nil && spec.ReadinessProbe == nil {
		return
	}
	now := Health{Started: h.Started, Ready: h.Ready, Since: c.Health.Since}
	if now != c.Health || now.Since.IsZero() {
		p.add(Action{Kind: RecordHealth, Container: c.Name, ContainerID: c.ID, Health: now, Reason: now.String()})
	}
}

func causeOf(kind probe.Kind) StopCause {
	if kind == probe.Startup {
		return StopStartupProbe
	}
	return StopLivenessProbe
}

// unhealthy is the reason of a stop, in kubelet's words.
func unhealthy(v *probe.Verdict) string {
	return fmt.Sprintf("Unhealthy: %s probe failed: %s", v.Kind, v.Output)
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

// graceOf is how long an instance that is stopped for a cause may take. A probe that has failed can set another time
// than the pod does.
func (p *planner) graceOf(c *Container, cause StopCause) time.Duration {
	if c.leaving() {
		cause = c.StopCause
	}
	if p.evicted() {
		return p.evictedGrace()
	}
	if h := p.o.Halt; h != nil && h.Bounded {
		return min(p.grace(), h.Grace)
	}
	if p.o.Grace != nil {
		return *p.o.Grace
	}
	if cause == StopRestartAll {
		return min(p.grace(), shortestStop)
	}
	_, spec := p.lifecycle(c)
	if spec == nil {
		return p.grace()
	}
	var failed *corev1.Probe
	switch cause {
	case StopLivenessProbe:
		failed = spec.LivenessProbe
	case StopStartupProbe:
		failed = spec.StartupProbe
	}
	if failed == nil || failed.TerminationGracePeriodSeconds == nil {
		return p.grace()
	}
	return time.Duration(*failed.TerminationGracePeriodSeconds) * time.Second
}
