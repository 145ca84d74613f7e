package runner

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

// DiskUsage is the disk usage of a pod in bytes, as of the latest measurement.
type DiskUsage struct {
	// EmptyDirs are the volumes on disk, by name.
	EmptyDirs map[string]int64
	// Containers is the usage of writable layers, logs and image volumes of all instances, by container name.
	Containers map[string]int64
	// Others is the remaining usage of the pod, mainly volumes that an edit has removed from the manifest.
	Others int64
}

// total returns the usage that counts against the limits of the pod.
func (u *DiskUsage) total() int64 {
	sum := u.Others
	for _, used := range []map[string]int64{u.EmptyDirs, u.Containers} {
		for _, n := range used {
			sum += n
		}
	}
	return sum
}

// LimitsDisk reports whether the pod limits its disk usage, which must then be measured.
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

// ContainerDiskLimit returns how much a container may have on disk: the lower of its limit and that of its pod; 0: no limit.
func ContainerDiskLimit(spec *corev1.PodSpec, container string) int64 {
	all := manifests.AggregateLimits(spec)
	limit := all.StorageEphemeral().Value()
	for c := range manifests.AllContainers(spec) {
		if own := c.Resources.Limits.StorageEphemeral(); c.Name == container && own.Sign() > 0 {
			limit = min(limit, own.Value())
		}
	}
	return limit
}

// diskLimit returns the size limit of an emptyDir on disk, 0 for other volumes.
func diskLimit(v *corev1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault || v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// Resources of a machine that containers exhaust by writing; used as Cause.Resource.
const (
	ResourceDisk   = string(corev1.ResourceEphemeralStorage)
	ResourceInodes = "inodes"
)

// Overuse returns which disk limit a pod exceeds. It checks limits in the kubelet's order and puts the kubelet's message into Detail. The
// zero Cause means that no limit is exceeded.
func Overuse(spec *corev1.PodSpec, used *DiskUsage) cause.Cause {
	if used == nil {
		return cause.Cause{}
	}
	exceeds := func(limit cause.Fault, format string, args ...any) cause.Cause {
		return cause.Cause{Kind: cause.Evicted, Fault: limit, Detail: fmt.Sprintf(format, args...)}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if limit := diskLimit(v); limit > 0 && used.EmptyDirs[v.Name] > limit {
			return exceeds(cause.VolumeLimit, "Usage of EmptyDir volume %q exceeds the limit %q.", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	all := manifests.AggregateLimits(spec)
	if limit := all.StorageEphemeral(); limit.Sign() > 0 && used.total() > limit.Value() {
		return exceeds(cause.PodLimit, "Pod ephemeral local storage usage exceeds the total limit of containers %s.", limit)
	}
	for c := range manifests.AllContainers(spec) {
		if limit := c.Resources.Limits.StorageEphemeral(); limit.Sign() > 0 && used.Containers[c.Name] > limit.Value() {
			return exceeds(cause.ContainerLimit, "Container %s exceeded its local ephemeral storage limit %q.", c.Name, limit)
		}
	}
	return cause.Cause{}
}
