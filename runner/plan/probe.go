package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/probe"
)

// Planning of what probes found out. They are asked in the background (see worker_probe.go); what they say is in
// Observed.Probes, and a change of it wakes the worker:
//
//	startup or liveness probe has failed:  StopContainer for that cause, then the restart policy
//	started, or ready, has changed:        RecordHealth, so that the next agent knows it from the start

// Started says that a container is as far as those that come after it wait for: it runs, its postStart hook has
// succeeded, and its startup probe as well.
func (o *Observed) Started(spec *corev1.Container, c *runner.Container) bool {
	if c.State != runner.ContainerRunning || c.PostStart == runner.PostStartPending {
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
func (o *Observed) Ready(spec *corev1.Container, c *runner.Container) bool {
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

// probes acts on the results of the probes of a running container.
func (p *stopper) probes(c *runner.Container) {
	h, ok := p.o.Probes[c.ID]
	if !ok || c.State != runner.ContainerRunning || p.blocked(instanceKey(c.ID)) {
		return
	}
	if h.Failed != nil && !c.Leaving() {
		p.stopFor(c, causeOf(h.Failed.Kind), Unhealthy(h.Failed))
		return
	}
	spec := ContainerSpec(p.pod, c.Name)
	if spec == nil || spec.StartupProbe == nil && spec.ReadinessProbe == nil {
		return
	}
	now := runner.Health{Started: h.Started, Ready: h.Ready, Since: h.Since}
	if now.Started != c.Health.Started || now.Ready != c.Health.Ready || c.Health.Since.IsZero() && !now.Since.IsZero() {
		p.add(runner.Action{Kind: runner.RecordHealth, Container: c.Name, ContainerID: c.ID, Health: now, Reason: now.String()})
	}
}

func causeOf(kind probe.Kind) runner.StopCause {
	if kind == probe.Startup {
		return runner.StopStartupProbe
	}
	return runner.StopLivenessProbe
}

// Unhealthy is the reason of a stop, in kubelet's words.
func Unhealthy(v *probe.Verdict) string {
	return fmt.Sprintf("Unhealthy: %s probe failed: %s", v.Kind, v.Output)
}

// graceOf is how long an instance that is stopped for a cause may take. A probe that has failed can set another time
// than the pod does.
func (p *progress) graceOf(c *runner.Container, cause runner.StopCause) time.Duration {
	if c.Leaving() {
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
	if cause == runner.StopRestartAll {
		return min(p.grace(), shortestStop)
	}
	_, spec := p.lifecycle(c)
	if spec == nil {
		return p.grace()
	}
	var failed *corev1.Probe
	switch cause {
	case runner.StopLivenessProbe:
		failed = spec.LivenessProbe
	case runner.StopStartupProbe:
		failed = spec.StartupProbe
	}
	if failed == nil || failed.TerminationGracePeriodSeconds == nil {
		return p.grace()
	}
	return time.Duration(*failed.TerminationGracePeriodSeconds) * time.Second
}
