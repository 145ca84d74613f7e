package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/probe"
)

// Planning of probe results. Probes run in the background (see pool/worker_probe.go); their results are in Observed.Probes, and a change
// wakes the worker:
//
//	startup or liveness probe has failed:  StopContainer for that cause, then the restart policy
//	started, or ready, has changed:        RecordHealth, so that the next agent knows it from the start

// Started reports whether a container has started as far as later containers require: it runs, and its postStart hook and its startup probe
// have succeeded.
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

// Ready reports whether a container is ready: it has started, and its readiness probe does not fail.
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

// probes acts on the probe results of a running instance.
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

// Unhealthy returns the reason of a stop, in the kubelet's words.
func Unhealthy(v *probe.Verdict) string {
	return fmt.Sprintf("Unhealthy: %s probe failed: %s", v.Kind, v.Output)
}

// graceOf returns the grace period of an instance that is stopped for a cause. A failed probe can have its own grace period.
func (p *progress) graceOf(c *runner.Container, cause runner.StopCause) time.Duration {
	if c.Leaving() {
		cause = c.StopCause
	}
	if p.evicted() {
		return p.evictedGrace()
	}
	if h := p.o.Halt; h != nil && h.Bounded {
		return h.Within(p.grace())
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
