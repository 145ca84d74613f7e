package runner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Planning of pods that use more of the disk than they may: they are evicted as by a kubelet, with its words. Other than
// there they come back, as new pods with empty volumes, unless their restart policy is Never: nobody else would make
// another one. Those that an API server has bound here stay Failed: its controllers replace them.

// ReasonEvicted is why a pod fails that uses too much of the disk.
const ReasonEvicted = "Evicted"

// evictionGrace is what the containers of an evicted pod are left, if they have not less anyway. It is kubelet's.
const evictionGrace = time.Second

// DiskUsage is what a pod uses of the disk, in bytes, as it was measured last.
type DiskUsage struct {
	// EmptyDirs are the volumes on disk, by name.
	EmptyDirs map[string]int64
	// Containers are writable layers, logs and volumes of images, of all instances, by the name of the container.
	Containers map[string]int64
	// Others is all else that the pod has on disk, what is left of volumes that an edit has taken out above all.
	Others int64
}

// total is what counts for the pod.
func (u *DiskUsage) total() int64 {
	sum := u.Others
	for _, used := range []map[string]int64{u.EmptyDirs, u.Containers} {
		for _, n := range used {
			sum += n
		}
	}
	return sum
}

// LimitsDisk says that somebody has to measure what the pod uses of the disk.
func LimitsDisk(spec *corev1.PodSpec) bool {
	if slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return diskLimit(&v) > 0 }) {
		return true
	}
	for c := range manifests.AllContainers(spec) {
		if c.Resources.Limits.StorageEphemeral().Sign() > 0 {
			return true
		}
	}
	return false
}

// diskLimit is the limit of an emptyDir on disk, 0 for others.
func diskLimit(v *corev1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault || v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// Overuse says in kubelet's words, and in its order, which limit a pod exceeds; empty: none.
func Overuse(spec *corev1.PodSpec, used *DiskUsage) string {
	if used == nil {
		return ""
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if limit := diskLimit(v); limit > 0 && used.EmptyDirs[v.Name] > limit {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	all := manifests.AggregateLimits(spec)
	if limit := all.StorageEphemeral(); limit.Sign() > 0 && used.total() > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s.", limit)
	}
	for c := range manifests.AllContainers(spec) {
		if limit := c.Resources.Limits.StorageEphemeral(); limit.Sign() > 0 && used.Containers[c.Name] > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q.", c.Name, limit)
		}
	}
	return ""
}

// overuse is Overuse of a pod that has something to do yet.
func (p *planner) overuse() string {
	if p.o.Sandbox.Disk == nil || p.ended() {
		return ""
	}
	return Overuse(&p.pod.Object.Spec, p.o.Sandbox.Disk)
}

// Eviction orders that a pod is stopped for the sake of the machine, or of another pod. It comes back when it may, unless an API server
// has bound it here: as with a kubelet, that one stays Failed.
type Eviction struct {
	// UID is that of the sandbox: the order is not about the pod that comes back.
	UID string
	// Reason is Evicted or Preempting.
	Reason, Message string
	// Grace bounds how long containers may take, unless it is negative: then the manifest decides.
	Grace time.Duration
}

// ordered says that the pod is to be evicted, and is not yet.
func (p *planner) ordered() bool {
	sb, e := p.o.Sandbox, p.o.Evict
	return e != nil && sb.UID == e.UID && sb.Failed == nil && !p.ended()
}

// evict fails a pod and ends it.
func (p *planner) evict(reason, message string) {
	p.add(Action{Kind: FailPod, Failure: reason, Message: message, Reason: message})
	p.evicting = true
	p.endFailed()
}

// giveBack removes the containers of a pod that was evicted because the disk was full, with all that they have written, once they have
// ended. Its volumes are given back by the Runtime, as those of all evicted pods.
func (p *planner) giveBack() {
	f := p.o.Sandbox.Failed
	if f == nil || f.Reason != ReasonEvicted || !strings.HasPrefix(f.Message, "The node was low on resource: ephemeral-storage.") && !strings.HasPrefix(f.Message, "The node was low on resource: inodes.") {
		return
	}
	for i := range p.o.Containers {
		if c := &p.o.Containers[i]; c.State == ContainerExited && c.Recorded {
			p.removeInstance(c, "evicted: what it has written is given back")
		}
	}
}

// evicted says that the pod is on its way out, or ended, because it was evicted.
func (p *planner) evicted() bool {
	sb := p.o.Sandbox
	return p.evicting || sb != nil && sb.Failed != nil && evictedFor(sb.Failed.Reason)
}

// evictedFor reports whether a pod that has failed for this reason was evicted.
func evictedFor(reason string) bool { return reason == ReasonEvicted || reason == ReasonPreempting }

// returnsAfter reports whether a pod of this spec and origin comes back when it has failed for this reason.
func returnsAfter(reason string, spec *corev1.PodSpec, origin manifests.Origin) bool {
	return evictedFor(reason) && spec.RestartPolicy != corev1.RestartPolicyNever && !origin.Bound()
}

// final reports whether a pod that an API server has bound here has ended by its record: the server knows that phase, and it is the last
// one, whatever is edited.
func (p *planner) final() bool {
	sb := p.o.Sandbox
	if p.pod == nil || !p.pod.Origin.Bound() || sb == nil || sb.Pod == nil || sb.Pod.Object.UID != p.pod.Object.UID {
		return false
	}
	recorded := *p
	recorded.pod = sb.Pod
	return sb.Failed != nil || recorded.ended()
}

// evictedGrace is what containers of an evicted pod have.
func (p *planner) evictedGrace() time.Duration {
	sb, e := p.o.Sandbox, p.o.Evict
	switch {
	case e != nil && sb != nil && e.UID == sb.UID && e.Grace >= 0:
		return min(p.grace(), max(e.Grace, evictionGrace))
	case e != nil && sb != nil && e.UID == sb.UID, sb != nil && sb.Failed != nil && sb.Failed.Reason == ReasonPreempting:
		return p.grace()
	}
	return min(p.grace(), evictionGrace)
}

// returns says that a failed pod is to be made again now; it asks to be called again when the time for that has not come.
func (p *planner) returns() bool {
	f := p.o.Sandbox.Failed
	if p.o.Waits || !returnsAfter(f.Reason, &p.pod.Object.Spec, p.pod.Origin) {
		return false
	}
	at := evictionOver(p.o.Sandbox, p.o.Options)
	if p.now.Before(at) && !f.At.After(p.now) {
		p.at(at)
		return false
	}
	return true
}

// evictionOver is when an evicted pod is made again: after 10 s, twice as long each time, as for a container that
// crashes.
func evictionOver(sb *Sandbox, o Options) time.Time {
	return sb.Failed.At.Add(doubled(min(initialBackOff, o.maxBackOff()), o.maxBackOff(), evictions(sb)))
}

// evictions is how often in a row a pod that is evicted has been so; one that lasted for long begins anew.
func evictions(sb *Sandbox) int {
	if sb.Failed.At.Sub(sb.CreatedAt) > backOffResetAfter {
		return 1
	}
	return sb.Evictions + 1
}
