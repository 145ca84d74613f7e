package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/hook"
)

// Planning of hooks. They run in the background:
//
//	postStart: [Running, Pending] --RunHook--> succeeds: MarkStarted --> [Running, Done]
//	                                           fails:    StopContainer, then the restart policy
//	preStop:   MarkStopping, RunHook --> ends, or the grace period does: StopContainer
//
// An agent that finds a hook neither recorded nor begun by itself runs it: each hook runs at least once.

// postStart sees to the hook of an instance that runs.
func (p *stopper) postStart(c *runner.Container) {
	if c.PostStart != runner.PostStartPending || c.State != runner.ContainerRunning || c.Leaving() || p.blocked(instanceKey(c.ID)) {
		return
	}
	l, spec := p.lifecycle(c)
	if l == nil || l.PostStart == nil {
		p.add(runner.Action{Kind: runner.MarkStarted, Container: c.Name, ContainerID: c.ID, Reason: "postStart hook removed from the manifest"})
		return
	}
	switch p.o.Hooks[HookKey{c.ID, runner.PostStartHook}] {
	case HookRunning:
	case HookDone:
		p.add(runner.Action{Kind: runner.MarkStarted, Container: c.Name, ContainerID: c.ID, Reason: "postStart hook succeeded"})
	case HookFailed:
		p.stopFor(c, runner.StopPostStart, "postStart hook failed")
	default:
		p.runHook(c, runner.PostStartHook, l.PostStart, spec, 0)
	}
}

// preStop says that the preStop hook of an instance is under way, or must be waited for; it begins it.
func (p *stopper) preStop(c *runner.Container, grace time.Duration, cause runner.StopCause, reason string) bool {
	l, spec := p.lifecycle(c)
	if l == nil || l.PreStop == nil || grace == 0 || cause == runner.StopRestartAll || p.graceOver(c, grace) {
		return false
	}
	begun := c.StoppingAt
	if begun.IsZero() {
		begun = p.now
		p.add(runner.Action{Kind: runner.MarkStopping, Container: c.Name, ContainerID: c.ID, Cause: cause, Reason: reason})
	}
	switch p.o.Hooks[HookKey{c.ID, runner.PreStopHook}] {
	case HookDone, HookFailed:
		return false
	case HookRunning:
	default:
		p.runHook(c, runner.PreStopHook, l.PreStop, spec, begun.Add(grace).Sub(p.now))
	}
	p.at(begun.Add(grace))
	return true
}

func (p *stopper) runHook(c *runner.Container, kind runner.HookKind, h *corev1.LifecycleHandler, spec *corev1.Container, limit time.Duration) {
	run, err := hook.Resolve(h, spec, p.address())
	p.add(runner.Action{
		Kind: runner.RunHook, Container: c.Name, ContainerID: c.ID, Reason: string(kind), Timeout: limit,
		Hook: kind, Handler: &runner.Handler{Hook: run, Err: err},
	})
}

// address is where the pod's servers are found. On the host's network that is the host itself.
func (p *view) address() string {
	sb := p.o.Sandbox
	switch {
	case sb == nil:
		return ""
	case len(sb.IPs) > 0:
		return sb.IPs[0]
	case sb.Pod != nil && sb.Pod.Object.Spec.HostNetwork:
		return "127.0.0.1"
	}
	return ""
}

// lifecycle returns the hooks that an instance has: those of the manifest that is followed if it was made from that,
// else those of the recorded one.
func (p *view) lifecycle(c *runner.Container) (*corev1.Lifecycle, *corev1.Container) {
	pods := []*manifests.Pod{p.pod, p.sandboxPod()}
	if p.pod != nil && !p.fits(c.Name, c) {
		pods = []*manifests.Pod{p.sandboxPod(), p.pod}
	}
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		if spec := ContainerSpec(pod, c.Name); spec != nil {
			return spec.Lifecycle, spec
		}
	}
	return nil, nil
}

// holdsBack says that a container is starting, or waits for its image only, but that its postStart hook has not
// ended: those after it wait, as they do with a kubelet.
func (p *containerPlanner) holdsBack(spec *corev1.Container) bool {
	if !hasPostStart(spec) {
		return false
	}
	if p.planned(runner.StartContainer, spec.Name) || p.o.Prepared[spec.Name] == PreparationRunning && !p.runs(spec.Name) {
		return true
	}
	for _, c := range p.instances(spec.Name) {
		if p.inSandbox(c) && c.State == runner.ContainerRunning && !c.Leaving() && c.PostStart == runner.PostStartPending {
			return true
		}
	}
	return false
}

func hasPostStart(spec *corev1.Container) bool {
	return spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
}
