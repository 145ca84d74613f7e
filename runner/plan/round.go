package plan

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/plan/retry"
)

// Planning of RestartAllContainers: the exit of one container restarts all containers, including init containers, in the same sandbox. That
// is a new round. The round is not stored: an exit that matches such a rule, among the instances of the latest round, means that the next
// round has begun. Instances of an earlier round are stopped and then replaced; until then they stay, for their history.
//
//	round 0: [a Running] [b Exited 42] -> round 1: [a told to stop] -> [a Exited] -> [a, b of round 1 Running]

// RoundOf returns the round of a pod: 0 unless all containers have been restarted.
func RoundOf(pod *corev1.PodSpec, o *runner.PodState) int {
	round := newestRound(o)
	if o.Sandbox != nil && trigger(pod, o, round) != nil {
		return round + 1
	}
	return round
}

// newestRound returns the latest round that has an instance.
func newestRound(o *runner.PodState) int {
	round := 0
	for i := range o.Containers {
		if c := &o.Containers[i]; o.Sandbox != nil && c.SandboxID == o.Sandbox.ID {
			round = max(round, c.Round)
		}
	}
	return round
}

// trigger returns the instance of a round whose exit began the next one.
func trigger(pod *corev1.PodSpec, o *runner.PodState, round int) *runner.Container {
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.SandboxID == o.Sandbox.ID && c.Round == round && retry.RestartsAll(pod, c) {
			return c
		}
	}
	return nil
}

// outdated reports whether an instance is of an earlier round than the pod.
func (p *view) outdated(c *runner.Container) bool {
	return !p.fresh && p.o.Sandbox != nil && c.SandboxID == p.o.Sandbox.ID && c.Round < p.round
}

// nextRound ends instances of an earlier round and reports whether to wait: no container is started until all of them have ended and the
// container that triggered the round may be restarted.
func (p *sequencer) nextRound() bool {
	if p.round == 0 {
		return false
	}
	waiting := false
	for i := range p.o.Containers {
		if c := &p.o.Containers[i]; c.State == runner.ContainerRunning && p.outdated(c) {
			p.stopFor(c, runner.StopRestartAll, "all containers are restarted")
			waiting = true
		}
	}
	if waiting {
		return true
	}
	if newestRound(&p.o.PodState) == p.round {
		return false
	}
	if c := trigger(&p.pod.Object.Spec, &p.o.PodState, p.round-1); c != nil {
		if r := p.restart(c); r.At.After(p.now) {
			p.at(r.At)
			p.settlePod()
			return true
		}
	}
	return false
}

// inherit returns the action that creates the successor of an instance of an earlier round, or of none.
func (p *containerPlanner) inherit(old *runner.Container) runner.Action {
	a := runner.Action{Kind: runner.CreateContainer, Round: p.round}
	if old == nil {
		return a
	}
	a.Last = old.Ending()
	if p.outdated(old) && retry.RestartsAll(&p.pod.Object.Spec, old) {
		a.BackOff = p.restart(old).BackOff
	}
	if old.Exit != nil && old.StopCause == runner.StopRestartAll {
		a.Last.Reason = runner.ReasonRestartingAllContainers
	}
	return a
}
