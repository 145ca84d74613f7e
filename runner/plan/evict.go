package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan/retry"
)

// Planning of pods that exceed their disk limits: they are evicted as by a kubelet, with the same messages. Unlike there, they come back as
// new pods with empty volumes unless their restart policy is Never, since no controller would replace them. Pods that an API server has
// bound here stay Failed: its controllers replace them.

// evictionGrace limits the grace period of the containers of an evicted pod, unless its Eviction allows more. It is the kubelet's.
const evictionGrace = time.Second

// overuse is runner.Overuse for a pod that has not completed.
func (p *progress) overuse() cause.Cause {
	if p.o.Sandbox.Disk == nil || p.ended() {
		return cause.Cause{}
	}
	return runner.Overuse(&p.pod.Object.Spec, p.o.Sandbox.Disk)
}

// Eviction orders that a pod is stopped to relieve the machine or to make room for another pod. It comes back later, unless an API server
// has bound it here: then it stays Failed, as with a kubelet.
type Eviction struct {
	// UID is the uid of the sandbox: the order does not apply to the pod that comes back.
	UID string
	// Reason is Evicted or Preempting.
	Reason, Message string
	// Cause is the resource that the machine lacks, or the pod that needs the room.
	Cause cause.Cause
	// Grace limits the grace period of containers; if it is negative, the manifest decides.
	Grace time.Duration
}

// ordered reports whether the pod must be evicted and has not been yet.
func (p *progress) ordered() bool {
	sb, e := p.o.Sandbox, p.o.Evict
	return e != nil && sb.UID == e.UID && sb.Failed == nil && !p.ended()
}

// evict fails a pod and ends it.
func (p *failer) evict(reason, message string, why cause.Cause) {
	why.Detail = "" // the message contains it
	p.add(runner.Action{Kind: runner.FailPod, Failure: reason, Message: message, FailureCause: why, Reason: message})
	p.evicting = true
	p.endFailed()
}

// giveBack removes the containers, with their writable layers and logs, of a pod that was evicted because the disk was full, once they have
// ended. The Runtime deletes its volumes, as it does for all evicted pods.
func (p *failer) giveBack() {
	f := p.o.Sandbox.Failed
	if f == nil || f.Reason != runner.ReasonEvicted || f.Cause.Resource != runner.ResourceDisk && f.Cause.Resource != runner.ResourceInodes {
		return
	}
	for _, all := range [][]runner.Container{p.o.Containers, p.debug} {
		for i := range all {
			if c := &all[i]; c.State == runner.ContainerExited && c.Recorded {
				p.removeInstance(c, "evicted: releasing its disk space")
			}
		}
	}
}

// evicted reports whether the pod is being evicted, or ended because of an eviction.
func (p *progress) evicted() bool {
	sb := p.o.Sandbox
	return p.evicting || sb != nil && sb.Failed != nil && EvictedFor(sb.Failed.Reason)
}

// EvictedFor reports whether a pod that failed for this reason was evicted.
func EvictedFor(reason string) bool {
	return reason == runner.ReasonEvicted || reason == runner.ReasonPreempting
}

// ReturnsAfter reports whether a pod of this spec and origin comes back after it failed for this reason.
func ReturnsAfter(reason string, spec *corev1.PodSpec, origin manifests.Origin) bool {
	return EvictedFor(reason) && spec.RestartPolicy != corev1.RestartPolicyNever && !origin.Bound()
}

// final reports whether a pod that an API server has bound here has ended according to its record. The server knows that phase, which is
// final, whatever is edited.
func (p *progress) final() bool {
	sb := p.o.Sandbox
	if p.pod == nil || !p.pod.Origin.Bound() || sb == nil || sb.Pod == nil || sb.Pod.Object.UID != p.pod.Object.UID {
		return false
	}
	return sb.Failed != nil || (&progress{p.followRecord()}).ended()
}

// evictedGrace returns the grace period of the containers of an evicted pod.
func (p *progress) evictedGrace() time.Duration {
	sb, e := p.o.Sandbox, p.o.Evict
	switch {
	case e != nil && sb != nil && e.UID == sb.UID && e.Grace >= 0:
		return min(p.grace(), max(e.Grace, evictionGrace))
	case e != nil && sb != nil && e.UID == sb.UID, sb != nil && sb.Failed != nil && sb.Failed.Reason == runner.ReasonPreempting:
		return p.grace()
	}
	return min(p.grace(), evictionGrace)
}

// returns reports whether a failed pod is recreated now; if it is too early, it asks for another plan later.
func (p *failer) returns() bool {
	f := p.o.Sandbox.Failed
	if p.o.Waits || !ReturnsAfter(f.Reason, &p.pod.Object.Spec, p.pod.Origin) {
		return false
	}
	at := EvictionOver(p.o.Sandbox, p.o.Options)
	if p.now.Before(at) && !f.At.After(p.now) {
		p.at(at)
		return false
	}
	return true
}

// EvictionOver returns when an evicted pod is recreated: after 10 s, doubled for each consecutive eviction, as for a crashing container.
func EvictionOver(sb *runner.Sandbox, o Options) time.Time {
	return sb.Failed.At.Add(retry.Doubled(min(retry.InitialBackOff, o.BackOffLimit()), o.BackOffLimit(), evictions(sb)))
}

// evictions returns the number of consecutive evictions of the pod; a sandbox that lasted long enough resets it.
func evictions(sb *runner.Sandbox) int {
	if sb.Failed.At.Sub(sb.CreatedAt) > retry.ResetAfter {
		return 1
	}
	return sb.Evictions + 1
}
