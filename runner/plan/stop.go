package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// Planning of the end of containers.
//
// Regular containers are told to stop together. Sidecars wait until none of those runs any more, then stop
// one after another, the last of the manifest first. All of them share one grace period: it begins for each
// with MarkStopping, or where nothing comes before the signal, with StopContainer.

// killAgain is how long a killed process may take to disappear before it is killed once more. One in
// uninterruptible sleep takes as long as the kernel likes; its exit is an event.
const killAgain = 10 * time.Second

// shortestStop is what a container is left between its signal and its end when others, or its own preStop hook,
// have used the grace period up. It is kubelet's.
const shortestStop = 2 * time.Second

// stopAll stops what runs and says whether nothing runs any more.
func (p *stopper) stopAll(reason string) bool {
	var sidecars []*runner.Container
	others := false
	for i := range p.o.Containers {
		switch c := &p.o.Containers[i]; {
		case c.State != runner.ContainerRunning:
		case p.roleOf(c) == sidecar:
			sidecars = append(sidecars, c)
		default:
			p.stop(c, reason)
			others = true
		}
	}
	p.stopInTurn(sidecars, others, reason)
	return !others && len(sidecars) == 0
}

// stopInTurn stops sidecars that run, one after another, unless others have to end before them.
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

// stopLater begins the grace period of a sidecar whose turn has not come. Its signal does not wait any longer
// than that.
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

// graceOver says that a grace period that began before the signal is over. When the clock was set back since,
// the rest of it cannot be known and is given up.
func (p *progress) graceOver(c *runner.Container, grace time.Duration) bool {
	return !c.StoppingAt.IsZero() && (!p.now.Before(c.StoppingAt.Add(grace)) || c.StoppingAt.After(p.now))
}

// stop tells a running instance to stop, and kills it when its grace period is over. The period is exactly
// what the manifest says: kubelet's floor of 2 s is applied only where something else has used it up, and 0 kills
// at once. It is counted again on each plan, so that an edit can shorten it. When the clock was set back since
// the signal, the rest of the period cannot be known and is given up.
func (p *stopper) stop(c *runner.Container, reason string) { p.stopFor(c, runner.StopUnwanted, reason) }

// stopFor is stop for a cause.
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

// KillTime is when a container that was sent its signal is killed.
func KillTime(c *runner.Container, sent time.Time, grace time.Duration) time.Time {
	if c.StoppingAt.IsZero() || c.StoppingAt.After(sent) {
		return sent.Add(grace)
	}
	return Later(c.StoppingAt.Add(grace), sent.Add(min(grace, shortestStop)))
}

// signal returns the stop signal of the manifest, empty when the image decides.
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
