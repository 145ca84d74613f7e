package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// Planning of pods that use more of the disk than they may: they are evicted as by a kubelet, with its words. Other than
// there they come back, as new pods with empty volumes, unless their restart policy is Never: nobody else would make
// another one. Those that an API server has bound here stay Failed: its controllers replace them.

// evictionGrace is what the containers of an evicted pod are left, if they have not less anyway. It is kubelet's.
const evictionGrace = time.Second

// overuse is runner.Overuse of a pod that has something to do yet.
func (p *progress) overuse() cause.Cause {
	if p.o.Sandbox.Disk == nil || p.ended() {
		return cause.Cause{}
	}
	return runner.Overuse(&p.pod.Object.Spec, p.o.Sandbox.Disk)
}

// Eviction orders that a pod is stopped for the sake of the machine, or of another pod. It comes back when it may, unless an API server
// has bound it here: as with a kubelet, that one stays Failed.
type Eviction struct {
	// UID is that of the sandbox: the order is not about the pod that comes back.
	UID string
	// Reason is Evicted or Preempting.
	Reason, Message string
	// Cause is what the machine is short of, or which pod needs the room.
	Cause cause.Cause
	// Grace bounds how long containers may take, unless it is negative: then the manifest decides.
	Grace time.Duration
}

// ordered says that the pod is to be evicted, and is not yet.
func (p *progress) ordered() bool {
	sb, e := p.o.Sandbox, p.o.Evict
	return e != nil && sb.UID == e.UID && sb.Failed == nil && !p.ended()
}

// evict fails a pod and ends it.
func (p *failer) evict(reason, message string, why cause.Cause) {
	why.Detail = "" // the message says it
	p.add(runner.Action{Kind: runner.FailPod, Failure: reason, Message: message, FailureCause: why, Reason: message})
	p.evicting = true
	p.endFailed()
}

// giveBack removes the containers of a pod that was evicted because the disk was full, with all that they have written, once they have
// ended. Its volumes are given back by the Runtime, as those of all evicted pods.
func (p *failer) giveBack() {
	f := p.o.Sandbox.Failed
	if f == nil || f.Reason != runner.ReasonEvicted || f.Cause.Resource != runner.ResourceDisk && f.Cause.Resource != runner.ResourceInodes {
		return
	}
	for i := range p.o.Containers {
		if c := &p.o.Containers[i]; c.State == runner.ContainerExited && c.Recorded {
			p.removeInstance(c, "evicted: what it has written is given back")
		}
	}
}

// evicted says that the pod is on its way out, or ended, because it was evicted.
func (p *progress) evicted() bool {
	sb := p.o.Sandbox
	return p.evicting || sb != nil && sb.Failed != nil && EvictedFor(sb.Failed.Reason)
}

// EvictedFor reports whether a pod that has failed for this reason was evicted.
func EvictedFor(reason string) bool {
	return reason == runner.ReasonEvicted || reason == runner.ReasonPreempting
}

// ReturnsAfter reports whether a pod of this spec and origin comes back when it has failed for this reason.
func ReturnsAfter(reason string, spec *corev1.PodSpec, origin manifests.Origin) bool {
	return EvictedFor(reason) && spec.RestartPolicy != corev1.RestartPolicyNever && !origin.Bound()
}

// final reports whether a pod that an API server has bound here has ended by its record: the server knows that phase, and it is the last
// one, whatever is edited.
func (p *progress) final() bool {
	sb := p.o.Sandbox
	if p.pod == nil || !p.pod.Origin.Bound() || sb == nil || sb.Pod == nil || sb.Pod.Object.UID != p.pod.Object.UID {
		return false
	}
	return sb.Failed != nil || (&progress{p.followRecord()}).ended()
}

// evictedGrace is what containers of an evicted pod have.
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

// returns says that a failed pod is to be made again now; it asks to be called again when the time for that has not come.
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

// EvictionOver is when an evicted pod is made again: after 10 s, twice as long each time, as for a container that
// crashes.
func EvictionOver(sb *runner.Sandbox, o Options) time.Time {
	return sb.Failed.At.Add(Doubled(min(initialBackOff, o.BackOffLimit()), o.BackOffLimit(), evictions(sb)))
}

// evictions is how often in a row a pod that is evicted has been so; one that lasted for long begins anew.
func evictions(sb *runner.Sandbox) int {
	if sb.Failed.At.Sub(sb.CreatedAt) > backOffResetAfter {
		return 1
	}
	return sb.Evictions + 1
}
