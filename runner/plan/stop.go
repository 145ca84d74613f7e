package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan/retry"
)

// Planning of the end of containers.
//
// Regular containers get the stop signal together. Sidecars wait until all of those have ended, then stop one after another, the last of the
// manifest first, and ephemeral containers last of all. All of them share one grace period. For each container it begins with MarkStopping, or
// with StopContainer if nothing precedes the signal.

// killAgain is the time after which a killed process that still exists is killed again. One in uninterruptible sleep may take much longer;
// its exit is an event.
const killAgain = 10 * time.Second

// shortestStop is the shortest time between signal and kill if other containers, or the container's preStop hook, have used up the grace
// period. It is the kubelet's.
const shortestStop = 2 * time.Second

// stopAll stops running containers and reports whether none runs.
func (p *stopper) stopAll(reason string) bool {
	var sidecars []*runner.Container
	others := false
	for i := range p.o.Containers {
		switch c := &p.o.Containers[i]; {
		case c.State != runner.ContainerRunning:
		case p.roleOf(c) == retry.Sidecar:
			sidecars = append(sidecars, c)
		default:
			p.stop(c, reason)
			others = true
		}
	}
	p.stopInTurn(sidecars, others, reason)
	others = others || len(sidecars) > 0
	return !p.stopDebug(others, reason) && !others
}

// stopInTurn stops running sidecars one after another, unless other containers have to end first.
func (p *stopper) stopInTurn(sidecars []*runner.Container, others bool, reason string) {
	order := func(c *runner.Container) int { return p.position(c.Name) }
	slices.SortStableFunc(sidecars, func(a, b *runner.Container) int { return order(b) - order(a) })
	for _, c := range sidecars {
		if others || c.Name != sidecars[0].Name {
			p.stopLater(c, reason)
		} else {
			p.stop(c, reason)
		}
	}
}

// stopLater begins the grace period of a sidecar whose turn has not come. Its signal waits at most until that period ends.
func (p *stopper) stopLater(c *runner.Container, reason string) {
	grace := p.graceOf(c, runner.StopUnwanted)
	if !c.StopSentAt.IsZero() || grace == 0 || p.graceOver(c, grace) {
		p.stop(c, reason)
		return
	}
	if p.blocked(instanceKey(c.ID)) || p.preStop(c, grace, runner.StopUnwanted, reason) {
		return
	}
	if c.StoppingAt.IsZero() {
		p.add(runner.Action{Kind: runner.MarkStopping, Container: c.Name, ContainerID: c.ID, Reason: reason})
		p.at(p.now.Add(grace))
		return
	}
	p.at(c.StoppingAt.Add(grace))
}

// graceOver reports whether a grace period that began before the signal is over. If the clock was set back since, the rest is unknown and
// dropped.
func (p *progress) graceOver(c *runner.Container, grace time.Duration) bool {
	return !c.StoppingAt.IsZero() && (!p.now.Before(c.StoppingAt.Add(grace)) || c.StoppingAt.After(p.now))
}

// stop sends the stop signal to a running instance, and kills it when its grace period is over. The period is exactly that of the manifest:
// the kubelet's minimum of 2 s applies only if something else has used it up, and 0 kills at once. Each plan computes it again, so that an
// edit can shorten it. If the clock was set back since the signal, the rest of the period is unknown and dropped.
func (p *stopper) stop(c *runner.Container, reason string) { p.stopFor(c, runner.StopUnwanted, reason) }

// stopFor is stop with a cause.
func (p *stopper) stopFor(c *runner.Container, cause runner.StopCause, reason string) {
	if p.blocked(instanceKey(c.ID)) {
		return
	}
	grace := p.graceOf(c, cause)
	if c.StopSentAt.IsZero() {
		if p.preStop(c, grace, cause, reason) {
			return
		}
		p.add(runner.Action{Kind: runner.StopContainer, Container: c.Name, ContainerID: c.ID, Cause: cause, Signal: p.signal(c), Reason: reason})
		if grace == 0 {
			p.add(runner.Action{Kind: runner.KillContainer, Container: c.Name, ContainerID: c.ID, Reason: "grace period 0"})
			return
		}
		p.at(KillTime(c, p.now, grace))
		return
	}
	deadline := KillTime(c, c.StopSentAt, grace)
	if p.now.Before(deadline) && !c.StopSentAt.After(p.now) {
		p.at(deadline)
		return
	}
	if killed, ok := p.o.Killed[c.ID]; ok && !killed.After(p.now) && p.now.Before(killed.Add(killAgain)) {
		p.at(killed.Add(killAgain))
		return
	}
	p.add(runner.Action{
		Kind: runner.KillContainer, Container: c.Name, ContainerID: c.ID,
		Reason: fmt.Sprintf("did not stop within %s", grace),
	})
}

// KillTime returns when a container that was sent its signal is killed.
func KillTime(c *runner.Container, sent time.Time, grace time.Duration) time.Time {
	if c.StoppingAt.IsZero() || c.StoppingAt.After(sent) {
		return sent.Add(grace)
	}
	return Later(c.StoppingAt.Add(grace), sent.Add(min(grace, shortestStop)))
}

// signal returns the stop signal of the manifest; empty if the image decides.
func (p *view) signal(c *runner.Container) string {
	if l, _ := p.lifecycle(c); l != nil && l.StopSignal != nil {
		return string(*l.StopSignal)
	}
	return ""
}

func (p *view) grace() time.Duration {
	if p.o.Grace != nil {
		return *p.o.Grace
	}
	for _, pod := range []*manifests.Pod{p.pod, p.sandboxPod()} {
		if pod != nil && pod.Object.Spec.TerminationGracePeriodSeconds != nil {
			return time.Duration(*pod.Object.Spec.TerminationGracePeriodSeconds) * time.Second
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

func (p *view) sandboxPod() *manifests.Pod {
	if p.o.Sandbox == nil {
		return nil
	}
	return p.o.Sandbox.Pod
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
