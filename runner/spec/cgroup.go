package spec

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// CgroupDriver selects who creates cgroups, and so their names.
type CgroupDriver string

// Cgroup drivers.
const (
	// CgroupfsDriver: directories are made in the cgroup file system. It is what the empty driver means too.
	CgroupfsDriver CgroupDriver = "cgroupfs"
	// SystemdDriver: systemd makes slices and scopes.
	SystemdDriver CgroupDriver = "systemd"
)

// scopePrefix is the first part of the names of scopes with containers.
const scopePrefix = "monopod"

// Cgroups is the tree of cgroups that pods run in. It has a kubelet's levels; guaranteed pods are directly below
// the root:
//
//	cgroupfs: <root>[/burstable|/besteffort]/pod<uid>/<id>
//	systemd:  <root>.slice[/<root>-burstable.slice]/<root>-burstable-pod<uid>.slice/monopod-<id>.scope
//
// All paths are relative to the mount points of the hierarchies and begin with a slash.
type Cgroups struct {
	Driver CgroupDriver
	// Root is the cgroup below which all pods are, as configured: /monopod.
	Root string
}

// Class is the cgroup of all pods of a quality of service class.
func (c Cgroups) Class(class corev1.PodQOSClass) string { return c.path(c.names(class)) }

// Pod is the cgroup of a pod.
func (c Cgroups) Pod(class corev1.PodQOSClass, uid string) string {
	return c.path(append(c.names(class), "pod"+uid))
}

// Container is the cgroup of a container in the cgroup of its pod.
func (c Cgroups) Container(pod, id string) string {
	if isSlice(pod) {
		return path.Join(pod, scopePrefix+"-"+id+".scope")
	}
	return path.Join(pod, id)
}

// OCIPath names the cgroup of a container for an OCI runtime.
func (c Cgroups) OCIPath(pod, id string) string {
	if isSlice(pod) {
		return path.Base(pod) + ":" + scopePrefix + ":" + id
	}
	return path.Join(pod, id)
}

// IsSystemd reports whether an OCI path is for systemd.
func IsSystemd(ociPath string) bool { return strings.Contains(ociPath, ".slice:") }

// ContainerOf returns the id of the container that an element of a cgroup's path stands for: the element itself,
// or what a scope is named after.
func ContainerOf(elem string) string {
	if scope, ok := strings.CutSuffix(elem, ".scope"); ok {
		if id, ok := strings.CutPrefix(scope, scopePrefix+"-"); ok {
			return id
		}
	}
	return elem
}

// isSlice reports whether systemd manages the cgroup of a pod.
func isSlice(pod string) bool { return strings.HasSuffix(pod, ".slice") }

// names are the elements of a class's cgroup, without systemd's repetitions.
func (c Cgroups) names(class corev1.PodQOSClass) []string {
	names := strings.FieldsFunc(c.Root, func(r rune) bool { return r == '/' })
	switch class {
	case corev1.PodQOSBurstable:
		return append(names, "burstable")
	case corev1.PodQOSBestEffort:
		return append(names, "besteffort")
	}
	return names
}

func (c Cgroups) path(names []string) string {
	if c.Driver != SystemdDriver {
		return "/" + path.Join(names...)
	}
	whole, out := "", "/"
	for _, n := range names {
		// A dash separates the levels of a slice's name.
		whole += "-" + strings.ReplaceAll(strings.TrimSuffix(n, ".slice"), "-", "_")
		out = path.Join(out, whole[1:]+".slice")
	}
	return out
}
