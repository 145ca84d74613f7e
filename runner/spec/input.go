// Package spec is the vocabulary of the packages below it: the Input that the OCI spec of a container depends on, and the names of cgroups.
// It must not decide anything about the spec: build, environ, limits and volumeplan do.
package spec

import (
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Input is everything a container's OCI spec depends on. Build reads nothing else: no disk, no clock, no environment.
type Input struct {
	// Pod is defaulted and valid. Pod.UID is the uid of the running pod (not that of the manifest).
	Pod *corev1.Pod
	// Container is the name of one of Pod's containers.
	Container string
	// ID is the container's id, last element of its cgroup path.
	ID string
	// Image is the config of its image.
	Image ocispec.ImageConfig
	// User is the numeric identity, resolved against the image's /etc/passwd and /etc/group.
	User User
	// Sandbox is what all containers of the pod share.
	Sandbox Sandbox
	// Volumes maps each volume name of the pod to what is mounted for it.
	Volumes map[string]Volume
	// Refs are the objects that the pod refers to.
	Refs *manifests.Refs
	// EnvFiles are the contents of those files of EnvFiles that exist.
	EnvFiles map[EnvFile]string
	// SubPaths maps each index of SubPaths(in) to the host path that was made for it: a file or directory that
	// lies in the volume.
	SubPaths map[int]string
	// ImageVolumes maps each path of ImageVolumePaths to the host directory bind-mounted there. An image's
	// VOLUME that is missing here stays part of the root file system.
	ImageVolumes map[string]string
	// CPUs is the list of processors the container may use ("2-3"); empty: all that its pod may.
	CPUs string
	// ExclusiveCPUs disables the CPU quota: no other container may use CPUs.
	ExclusiveCPUs bool
	// Host holds the facts of this machine.
	Host Host
	// Services are the environment variables of the Services in the pod's namespace.
	Services map[string]string
	// API is the Kubernetes API of this machine; if nil, pods cannot use it.
	API API
	// Preview is set when files that containers write for one another do not exist yet.
	Preview bool
}

// API is the Kubernetes API of this machine, for the pods that use it. Its methods may be called concurrently.
type API interface {
	// Token returns a token for a pod. If the pod has no uid, it only checks whether the pod could get one.
	Token(pod *corev1.Pod, t *corev1.ServiceAccountTokenProjection) ([]byte, error)
	// RootCA returns the CA certificates of the API in PEM; empty if the API is disabled.
	RootCA() string
	// Variables returns the environment variables with the address of the API; nil if the pod does not use it.
	Variables(pod *corev1.Pod) map[string]string
}

// FindContainer returns a container of a pod by its name, whatever its kind.
func FindContainer(pod *corev1.Pod, name string) (*corev1.Container, error) {
	if c := manifests.FindContainer(&pod.Spec, name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %s not found", name)
}

// User is a resolved process identity.
type User struct {
	UID uint32
	GID uint32
	// Groups are the additional gids of the image's /etc/group, without the pod's own supplementalGroups and fsGroup.
	Groups []uint32
}

// Sandbox is the part of a pod that its containers share. Empty namespace paths mean the host's.
type Sandbox struct {
	ID string
	// Cgroup is the pod's cgroup, relative to the mount points of the hierarchies; empty: where Host.Cgroups has it.
	Cgroup string
	// Hostname is what HOSTNAME says; for host-network pods it is the machine's.
	Hostname string
	NetNS    string
	IPCNS    string
	UTSNS    string
	// UserNS is that of a pod with hostUsers: false; its id 0 is FirstID on the machine. Empty: the machine's own.
	UserNS  string
	FirstID uint32
	// PIDNS is that of a pod with shareProcessNamespace; empty: each container has one of its own.
	PIDNS string
	// IPs are the pod's addresses; for host-network pods those of the node.
	IPs []string
	// ShmPath, HostsPath, HostnamePath and ResolvConfPath are host paths bind-mounted into each container. Like
	// TerminationLogPath they belong to FirstID.
	ShmPath        string
	HostsPath      string
	HostnamePath   string
	ResolvConfPath string
	// TerminationLogPath is the host file behind terminationMessagePath of this container; empty: none.
	TerminationLogPath string
}

// Volume is a prepared volume.
type Volume struct {
	// HostPath is the bind source.
	HostPath string
	// ReadOnly: every mount of it is.
	ReadOnly bool
	// Options are further mount options of every mount of it.
	Options []string
	// Mapped: its files have the ids of the pod's user namespace already.
	Mapped bool
	// Image is the digest of the image that it is; empty for other volumes.
	Image string
	// Device is what containers get that use the volume as a device; nil for volumes with a file system.
	Device *Device
}

// Host holds facts about the machine that change the spec.
type Host struct {
	NodeName string
	// NodeIPs are the node's addresses, IPv4 first.
	NodeIPs []string
	// CgroupV2 is set if the unified hierarchy is the only one.
	CgroupV2 bool
	// CgroupMountOptions are those of nsdelegate and memory_recursiveprot with which /sys/fs/cgroup is mounted
	// on the host: a container without its own cgroup namespace would otherwise switch them off for everybody.
	CgroupMountOptions []string
	// SwapAccounting is set if the kernel can limit swap (memory.memsw.limit_in_bytes or memory.swap.max exists).
	SwapAccounting bool
	// Cgroups is where the cgroups of pods are.
	Cgroups Cgroups
	// Enforce configures the enforcement of resources.
	Enforce Enforcement
	// HugePageSizes are those that the kernel has and can limit, in bytes.
	HugePageSizes []int64
	// PageSize is that of ordinary memory; 0: 4096.
	PageSize int64
	// SwapBytes is the size of the machine's swap.
	SwapBytes int64
	// MemoryBytes and MilliCPU are the machine's, for oom_score_adj and resource fields without a limit.
	MemoryBytes int64
	MilliCPU    int64
	// EphemeralStorageBytes is the size of the file system of the pods' disks, for resource fields without a limit; 0: not known.
	EphemeralStorageBytes int64
	// Capabilities is the bounding set of this process ("CAP_CHOWN", ...): privileged containers get all of it.
	Capabilities []string
	// MinOOMScoreAdj is the lowest oom_score_adj this process may give: lower values are raised to it.
	MinOOMScoreAdj int
	// RecursiveReadOnly is set if kernel and runtime can make a mount and all mounts below it read-only.
	RecursiveReadOnly bool
	// MaskedPaths are the paths hidden from unprivileged containers beyond the fixed list (thermal_throttle files).
	MaskedPaths []string
	// Devices are all host devices, for privileged containers.
	Devices []Device
	// Annotations are added to each spec (for the shim).
	Annotations map[string]string
}

// Device is a host device node.
type Device struct {
	Path     string
	Type     string
	Major    int64
	Minor    int64
	FileMode uint32
	UID      uint32
	GID      uint32
}

// EnvFile names a file of a volume that variables are read from.
type EnvFile struct {
	Volume string
	// Path is relative to the volume.
	Path string
}

// Enforcement has the settings of a kubelet's configuration that control the enforcement of resources. The zero value is its default.
type Enforcement struct {
	// NoCPUQuota: cpu limits have no effect (cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is that of quotas, in microseconds; 0: 100 ms.
	CPUPeriod uint64
	// LimitedSwap: burstable pods get a share of the swap, in proportion to the memory they request.
	LimitedSwap bool
	// SingleProcessOOMKill: a process out of memory does not end the whole container (cgroup v2).
	SingleProcessOOMKill bool
	// MemoryThrottling is the part of the way from request to limit from which a container is slowed down, above 0
	// and up to 1; 0: it is not (cgroup v2, memory.high).
	MemoryThrottling float64
	// ReserveMemory: requested memory is protected, hard for guaranteed pods, softly for burstable ones (cgroup v2,
	// memory.min and memory.low).
	ReserveMemory bool
	// StaticCPUs: containers of guaranteed pods that ask for whole processors have them for themselves
	// (cpuManagerPolicy: static).
	StaticCPUs bool
	// PodPidsLimit is pids.max of each pod; 0 or less: none.
	PodPidsLimit int64
}
