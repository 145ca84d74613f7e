package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// Crash back-off, as kubelet's: the first restart comes at once, then after 10, 20,
// 40, 80, 160, 300, 300... seconds from the exit; an instance that ran longer than 10 minutes starts it over.
// Unlike kubelet's it is a property of the container record, so that it outlives the agent; a reboot starts it over.
const (
	initialBackOff    = 10 * time.Second
	defaultMaxBackOff = 300 * time.Second
	backOffResetAfter = 600 * time.Second
)

// Restart says what becomes of a container whose instance has exited.
type Restart struct {
	// Wanted says that it is to be started again.
	Wanted bool
	// At is when. It is not after the time asked about if it may start now.
	At time.Time
	// BackOff is what the next instance will wait after its own exit.
	BackOff time.Duration
	// Reason says why it is restarted, or why not.
	Reason string
}

// NextRestart decides about an exited instance of a pod.
func NextRestart(now time.Time, pod *corev1.PodSpec, c *runner.Container, o Options) Restart {
	return nextRestart(now, RestartPolicy(pod, c), c, o)
}

// RestartPolicy is what the pod wants of an instance that ended as this one did. An init container that has
// succeeded is never run again, and one that failed only unless its policy is Never.
func RestartPolicy(pod *corev1.PodSpec, c *runner.Container) corev1.RestartPolicy {
	policy, role := pod.RestartPolicy, RoleIn(pod, c.Name)
	if spec := manifests.FindContainer(pod, c.Name); spec != nil && spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*spec.RestartPolicy)
		if c.Exit != nil && matchingRule(spec, c.Exit.ExitCode) != nil {
			policy = corev1.RestartPolicyAlways
		}
	}
	switch {
	case role == initial && Succeeded(c):
		return corev1.RestartPolicyOnFailure
	case role == initial && policy == corev1.RestartPolicyOnFailure:
		return corev1.RestartPolicyAlways // it has failed, if only for lack of memory
	case policy == corev1.RestartPolicyOnFailure && c.StopCause.Failed():
		return corev1.RestartPolicyAlways // whatever it exited with, it has failed
	}
	return policy
}

// matchingRule returns the first rule of a container about an exit code; nil if there is none.
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

// RestartsAll says that the end of an instance wants all containers of the pod to be started again.
func RestartsAll(pod *corev1.PodSpec, c *runner.Container) bool {
	spec := manifests.FindContainer(pod, c.Name)
	if spec == nil || c.State != runner.ContainerExited || c.Exit == nil || c.StartedAt.IsZero() || c.Leaving() && !c.StopCause.Failed() {
		return false
	}
	if RoleIn(pod, c.Name) == initial && Succeeded(c) {
		return false
	}
	rule := matchingRule(spec, c.Exit.ExitCode)
	return rule != nil && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// nextRestart decides about an exited instance by the policy that it has.
//
// An instance that we stopped ourselves and that is wanted again (an edit or a removal was taken back) starts
// at once whatever its policy says: it did not end by itself. An exit in the future, which a clock that was
// set back leaves behind, does not count as a reason to wait; nor does one at an unknown time.
func nextRestart(now time.Time, policy corev1.RestartPolicy, c *runner.Container, o Options) Restart {
	if c.Leaving() && !c.StopCause.Failed() {
		return Restart{Wanted: true, At: now, Reason: "it was stopped, but is wanted"}
	}
	if c.Exit == nil || c.StartedAt.IsZero() {
		return Restart{Wanted: true, At: now, Reason: "it did not run"}
	}
	if policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && c.Exit.ExitCode == 0 {
		return Restart{Reason: fmt.Sprintf("exited with %d, restart policy %s", c.Exit.ExitCode, policy)}
	}
	if c.EarlierBoot { // it may not have ended by itself, and a kubelet forgets, too
		return Restart{Wanted: true, At: now, Reason: "node restarted"}
	}
	wait := c.BackOff
	if c.Exit.FinishedAt.Sub(c.StartedAt) > backOffResetAfter {
		wait = 0
	}
	wait = min(wait, o.BackOffLimit())
	r := Restart{
		Wanted:  true,
		At:      now,
		BackOff: nextBackOff(wait, o.BackOffLimit()),
		Reason:  fmt.Sprintf("exited with %d, restart policy %s", c.Exit.ExitCode, policy),
	}
	if finished := c.Exit.FinishedAt; !finished.IsZero() && !finished.After(now) {
		r.At = finished.Add(wait)
	}
	return r
}

func nextBackOff(wait, longest time.Duration) time.Duration {
	if wait == 0 {
		return min(initialBackOff, longest)
	}
	return min(2*wait, longest)
}

// BackOffLimit is MaxBackOff within its bounds.
func (o Options) BackOffLimit() time.Duration {
	if o.MaxBackOff == 0 {
		return defaultMaxBackOff
	}
	return min(max(o.MaxBackOff, time.Second), defaultMaxBackOff)
}

// Back-off of failed steps. Pulling is kubelet's (10 s doubling to 300 s): registries and links do not like to be
// hurried. Everything else fails for reasons on this machine (a missing hostPath, a full disk, a CNI plugin
// that is not there yet) which go away without notice; a try costs less than a tenth of a second, so it
// starts at 1 s and is never more than a minute behind.
const (
	imageBackOff    = 10 * time.Second
	maxImageBackOff = 300 * time.Second
	stepBackOff     = time.Second
	maxStepBackOff  = 60 * time.Second
)

// Due is when the failed step may be tried again.
func (f Failure) Due() time.Time {
	if f.IsImage() {
		return f.At.Add(Doubled(imageBackOff, maxImageBackOff, f.Count))
	}
	return f.At.Add(Doubled(stepBackOff, maxStepBackOff, f.Count))
}

// IsImage says that what failed is getting the image.
func (f Failure) IsImage() bool {
	switch f.Reason {
	case runner.ReasonErrImagePull, runner.ReasonImagePullBackOff, runner.ReasonErrImageNeverPull, runner.ReasonInvalidImageName, runner.ReasonImageInspectError,
		runner.ReasonSignatureValidationFailed, runner.ReasonImageNotAllowed:
		return true
	}
	return false
}

// Doubled is d doubled for each failure after the first.
func Doubled(d, longest time.Duration, count int) time.Duration {
	for range count - 1 {
		if d *= 2; d >= longest {
			return longest
		}
	}
	return d
}
