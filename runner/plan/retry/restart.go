// Package retry decides whether and when a container that has ended is started again, and when a step that has failed is tried again.
//
// It is pure: no clock, disk, runtime or goroutines. It must not decide what else happens to the pod, which is the task of runner/plan.
package retry

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// Crash back-off as in the kubelet: the first restart is immediate, then 10, 20, 40, 80, 160, 300, 300... seconds after the exit. A run
// longer than 10 minutes resets it. Unlike the kubelet's, it is stored on the container record and survives the agent; a reboot resets it.
const (
	InitialBackOff = 10 * time.Second
	MaxBackOff     = 300 * time.Second
	ResetAfter     = 600 * time.Second
)

// Restart is the decision about a container whose instance has exited.
type Restart struct {
	// Wanted reports whether it is started again.
	Wanted bool
	// At is when it is started. It is not after now if the container may start now.
	At time.Time
	// BackOff is the back-off of the next instance after its own exit.
	BackOff time.Duration
	// Reason is why it is restarted, or why not.
	Reason string
}

// Policy returns the policy of the pod for an instance that ended as this one did. An init container that has succeeded is never run
// again; one that failed is, unless its policy is Never.
func Policy(pod *corev1.PodSpec, c *runner.Container) corev1.RestartPolicy {
	policy, role := pod.RestartPolicy, RoleIn(pod, c.Name)
	if spec := manifests.FindContainer(pod, c.Name); spec != nil && spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*spec.RestartPolicy)
		if c.Exit != nil && matchingRule(spec, c.Exit.ExitCode) != nil {
			policy = corev1.RestartPolicyAlways
		}
	}
	switch {
	case role == Initial && Succeeded(c):
		return corev1.RestartPolicyOnFailure
	case role == Initial && policy == corev1.RestartPolicyOnFailure:
		return corev1.RestartPolicyAlways // it has failed, if only for lack of memory
	case policy == corev1.RestartPolicyOnFailure && c.StopCause.Failed():
		return corev1.RestartPolicyAlways // whatever it exited with, it has failed
	}
	return policy
}

// matchingRule returns the first rule of a container for an exit code; nil if there is none.
func matchingRule(spec *corev1.Container, code int) *corev1.ContainerRestartRule {
	for i := range spec.RestartPolicyRules {
		r := &spec.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(r.ExitCodes.Values, int32(code))
		if listed == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return r
		}
	}
	return nil
}

// RestartsAll reports whether the exit of an instance restarts all containers of the pod.
func RestartsAll(pod *corev1.PodSpec, c *runner.Container) bool {
	spec := manifests.FindContainer(pod, c.Name)
	if spec == nil || c.State != runner.ContainerExited || c.Exit == nil || c.StartedAt.IsZero() || c.Leaving() && !c.StopCause.Failed() {
		return false
	}
	if RoleIn(pod, c.Name) == Initial && Succeeded(c) {
		return false
	}
	rule := matchingRule(spec, c.Exit.ExitCode)
	return rule != nil && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// Next decides about an exited instance with the given policy. Longest is the longest back-off.
//
// An instance that the agent stopped and that is desired again (an edit or a removal was reverted) is started at once whatever its policy
// is: it did not end by itself. An exit at an unknown time, or in the future because the clock was set back, causes no wait.
func Next(now time.Time, policy corev1.RestartPolicy, c *runner.Container, longest time.Duration) Restart {
	if c.Leaving() && !c.StopCause.Failed() {
		return Restart{Wanted: true, At: now, Reason: "it was stopped, but should run"}
	}
	if c.Exit == nil || c.StartedAt.IsZero() {
		return Restart{Wanted: true, At: now, Reason: "it was not running"}
	}
	if policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && c.Exit.ExitCode == 0 {
		return Restart{Reason: fmt.Sprintf("exited with %d, restart policy %s", c.Exit.ExitCode, policy)}
	}
	if c.EarlierBoot { // it may not have ended by itself; the kubelet resets it as well
		return Restart{Wanted: true, At: now, Reason: "node restarted"}
	}
	wait := c.BackOff
	if c.Exit.FinishedAt.Sub(c.StartedAt) > ResetAfter {
		wait = 0
	}
	wait = min(wait, longest)
	r := Restart{
		Wanted:  true,
		At:      now,
		BackOff: nextBackOff(wait, longest),
		Reason:  fmt.Sprintf("exited with %d, restart policy %s", c.Exit.ExitCode, policy),
	}
	if finished := c.Exit.FinishedAt; !finished.IsZero() && !finished.After(now) {
		r.At = finished.Add(wait)
	}
	return r
}

func nextBackOff(wait, longest time.Duration) time.Duration {
	if wait == 0 {
		return min(InitialBackOff, longest)
	}
	return min(2*wait, longest)
}
