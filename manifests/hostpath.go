package manifests

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
)

// relativePath refuses a path of the host that is relative: to what, nobody knows. podman takes the directory in which its command was
// typed, a kubelet leaves it to the runtime.
func relativePath(p, at string) []problem {
	if p == "" || path.IsAbs(p) {
		return nil
	}
	return []problem{{
		path: at, msg: fmt.Sprintf("not supported: %s is relative, and nobody knows to what", describe(p)),
		hint: fmt.Sprintf("write the whole path, as in %q", path.Join("/srv", path.Join("/", p))),
	}}
}

// relativePaths does the same for the directory of a PersistentVolume.
func relativePaths(s *corev1.PersistentVolumeSource, it item) []problem {
	switch {
	case s.HostPath != nil:
		return relativePath(s.HostPath.Path, it.path("spec.hostPath.path"))
	case s.Local != nil:
		return relativePath(s.Local.Path, it.path("spec.local.path"))
	}
	return nil
}
