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
// An agent that finds a hook that is neither recorded nor started by itself runs it: each hook runs at least once.

// postStart runs the postStart hook of a running instance and acts on its result.
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

// preStop starts the preStop hook of an instance and reports whether the stop signal has to wait for it.
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

// address returns the address of the pod's servers; for pods on the host network, that of the host.
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

// lifecycle returns the hooks of an instance: those of the manifest that is followed if the instance was created from it, else those of the
// recorded manifest.
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

// holdsBack reports whether later containers must wait for this one, as with a kubelet: it is starting, or waits only for its image, and
// its postStart hook has not ended.
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
