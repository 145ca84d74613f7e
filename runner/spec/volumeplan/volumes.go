// Package volumeplan decides what each volume of a pod needs on the host, and composes the files of ConfigMap, Secret, downward API and
// projected volumes. It is pure: runner/ctrd/volume creates directories and files.
package volumeplan

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/quantity"
	"monopod/manifests"
	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// Plan is how to prepare one volume. Exactly one of the pointers is set.
type Plan struct {
	Name     string
	HostPath *HostPath
	EmptyDir *EmptyDir
	// Files is the definition of a volume that Files fills.
	Files *corev1.VolumeSource
	// Image is an image whose content is mounted, read-only.
	Image *corev1.ImageVolumeSource
	Claim *Claim `json:",omitempty"`
	// NFS and ISCSI are storage of other machines.
	NFS   *corev1.NFSVolumeSource   `json:",omitempty"`
	ISCSI *corev1.ISCSIVolumeSource `json:",omitempty"`
}

// Claim is a PersistentVolumeClaim that a pod uses.
type Claim struct {
	// Name is that of the claim, in the pod's namespace.
	Name string
	// ReadOnly: every mount of it is.
	ReadOnly bool
	// Template is the claim of an ephemeral volume, which lives as long as the pod; nil for claims with documents.
	Template *corev1.PersistentVolumeClaim
}

// HostPath is a path of the machine. To prepare it: stat it (following symlinks), Check it, create what Missing returns if it does not exist, and mount the path with its symlinks resolved.
type HostPath struct {
	Path string
	Type corev1.HostPathType
}

// EmptyDir is a directory that lives as long as the pod's sandbox.
type EmptyDir struct {
	// Memory: it is a tmpfs.
	Memory bool
	// PageBytes is the size of the pages of a hugetlbfs; 0: it is none.
	PageBytes int64
	// SizeBytes is the size of the tmpfs, or of the hugetlbfs if it has a limit; 0 for directories on disk.
	SizeBytes int64
	// Mode has the permissions and perhaps the sticky bit.
	Mode fs.FileMode
	// GID owns the directory, which then has the setgid bit; nil: root's group.
	GID *int64
}

// ForPod returns the volumes that at least one container uses, in the order of the manifest. Kubelet does not
// look at the others either.
func ForPod(pod *corev1.Pod, host spec.Host) ([]Plan, error) {
	mounted := map[string]bool{}
	mounts := func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			mounted[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			mounted[c.VolumeDevices[i].Name] = true
		}
	}
	for c := range manifests.AllContainers(&pod.Spec) {
		mounts(c)
	}
	for i := range pod.Spec.EphemeralContainers {
		mounts(manifests.AsContainer(&pod.Spec.EphemeralContainers[i]))
	}
	var plans []Plan
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !mounted[v.Name] {
			continue
		}
		plan, err := planVolume(pod, host, v)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// planVolume plans one volume.
func planVolume(pod *corev1.Pod, host spec.Host, v *corev1.Volume) (Plan, error) {
	switch {
	case v.HostPath != nil:
		h := HostPathOf(v.HostPath)
		return Plan{Name: v.Name, HostPath: &h}, nil
	case Followed(&v.VolumeSource):
		return Plan{Name: v.Name, Files: &v.VolumeSource}, nil
	case v.Image != nil:
		return Plan{Name: v.Name, Image: v.Image}, nil
	case v.PersistentVolumeClaim != nil:
		c := Claim{Name: v.PersistentVolumeClaim.ClaimName, ReadOnly: v.PersistentVolumeClaim.ReadOnly}
		return Plan{Name: v.Name, Claim: &c}, nil
	case v.Ephemeral != nil:
		c := Claim{Name: manifests.TemplateClaimName(pod, v), Template: manifests.TemplateClaim(pod, v)}
		return Plan{Name: v.Name, Claim: &c}, nil
	case v.NFS != nil:
		return Plan{Name: v.Name, NFS: v.NFS}, nil
	case v.ISCSI != nil:
		return Plan{Name: v.Name, ISCSI: v.ISCSI}, nil
	case v.EmptyDir != nil:
		e := EmptyDir{Mode: EmptyDirMode(v.EmptyDir)}
		if s := pod.Spec.SecurityContext; s != nil {
			e.GID = s.FSGroup
		}
		return Plan{Name: v.Name, EmptyDir: &e}, planMedium(pod, host, v, &e)
	default:
		return Plan{}, fmt.Errorf("volume %q: this kind of volume is not supported by this release", v.Name)
	}
}

// HostPathOf is the path of the machine that a volume is.
func HostPathOf(source *corev1.HostPathVolumeSource) HostPath {
	h := HostPath{Path: path.Clean(source.Path)}
	if source.Type != nil {
		h.Type = *source.Type
	}
	return h
}

// EmptyDirMode is the mode of an emptyDir: its own, or 0777. In memory that is 01777: kubelet mounts a tmpfs without a
// mode, and the kernel's default has the sticky bit.
func EmptyDirMode(e *corev1.EmptyDirVolumeSource) fs.FileMode {
	switch {
	case e.Mode == nil && e.Medium == corev1.StorageMediumMemory:
		return 0o777 | fs.ModeSticky
	case e.Mode == nil:
		return 0o777
	}
	mode := fs.FileMode(*e.Mode) & fs.ModePerm
	if *e.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// planMedium decides what an emptyDir is made of.
func planMedium(pod *corev1.Pod, host spec.Host, v *corev1.Volume, e *EmptyDir) (err error) {
	switch medium := v.EmptyDir.Medium; {
	case medium == corev1.StorageMediumDefault:
	case medium == corev1.StorageMediumMemory:
		e.Memory, e.SizeBytes = true, tmpfsSize(pod, host, v.EmptyDir)
	case medium == corev1.StorageMediumHugePages, strings.HasPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)):
		if e.PageBytes, err = pageSize(pod, medium); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
		if limit := v.EmptyDir.SizeLimit; limit != nil {
			e.SizeBytes = limit.Value()
		}
	default:
		return fmt.Errorf("volume %q: unknown storage medium %q", v.Name, medium)
	}
	return nil
}

// pageSize returns the size of the huge pages of a volume, which the pod must have requested. Errors have kubelet's words.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	wanted := int64(0)
	if text, sized := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); sized {
		q, err := quantity.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("medium %s: %w", medium, err)
		}
		wanted = q.Value()
	}
	found := int64(0)
	for name := range hugePageRequests(pod) {
		switch size, ok := limits.HugePageSize(name); {
		case !ok, wanted > 0 && size != wanted:
		case found > 0 && size != found:
			return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
		default:
			found = size
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	}
	return found, nil
}

// hugePageRequests are the names of all huge pages that the pod and its containers request.
func hugePageRequests(pod *corev1.Pod) map[corev1.ResourceName]bool {
	names := map[corev1.ResourceName]bool{}
	add := func(r corev1.ResourceList) {
		for name := range r {
			if _, ok := limits.HugePageSize(name); ok {
				names[name] = true
			}
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources.Requests)
	}
	for c := range manifests.AllContainers(&pod.Spec) {
		add(c.Resources.Requests)
	}
	return names
}

// tmpfsSize is the least of the volume's sizeLimit, the memory limit of the pod's cgroup and the machine's memory.
func tmpfsSize(pod *corev1.Pod, host spec.Host, e *corev1.EmptyDirVolumeSource) int64 {
	size := host.MemoryBytes
	if limit := limits.ForPod(pod, host).Memory; limit != nil {
		size = min(size, *limit)
	}
	if e.SizeLimit != nil && e.SizeLimit.Value() > 0 {
		size = min(size, e.SizeLimit.Value())
	}
	return size
}

// Creation is what to make where a host path does not exist.
type Creation string

// Creations.
const (
	// CreateNothing: a missing path is an error.
	CreateNothing Creation = ""
	// CreateDirectory: with its parents, mode 0755.
	CreateDirectory Creation = "directory"
	// CreateFile: an empty one of mode 0644; its parent must exist.
	CreateFile Creation = "file"
)

// Missing returns what to create when the path does not exist.
func (h HostPath) Missing() Creation {
	switch h.Type {
	case corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate:
		return CreateDirectory
	case corev1.HostPathFileOrCreate:
		return CreateFile
	default:
		return CreateNothing
	}
}

// Check compares the type with what is at the path; info is nil when nothing is. Errors have kubelet's words.
func (h HostPath) Check(info fs.FileInfo) error {
	if info == nil && h.Missing() != CreateNothing {
		return nil
	}
	var mode fs.FileMode
	if info != nil {
		mode = info.Mode()
	}
	const char, device = fs.ModeCharDevice, fs.ModeDevice
	ok, what := true, ""
	switch h.Type {
	case corev1.HostPathUnset:
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		ok, what = mode.IsDir(), "a directory"
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		ok, what = info != nil && mode.IsRegular(), "a file"
	case corev1.HostPathSocket:
		ok, what = mode&fs.ModeSocket != 0, "a socket file"
	case corev1.HostPathCharDev:
		ok, what = mode&char != 0, "a character device"
	case corev1.HostPathBlockDev:
		ok, what = mode&device != 0 && mode&char == 0, "a block device"
	default:
		return fmt.Errorf("%s is an invalid volume type", h.Type)
	}
	if !ok {
		return cause.Wrap(
			fmt.Errorf("hostPath type check failed: %s is not %s", h.Path, what),
			cause.Cause{Kind: cause.HostPath, Path: h.Path, Expected: what},
		)
	}
	return nil
}
