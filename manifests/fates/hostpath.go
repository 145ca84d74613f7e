package fates

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/document"
	"monopod/manifests/explain"
)

// RelativePath refuses a relative path of the host: podman resolves it against the working directory, a kubelet leaves it to the runtime.
func RelativePath(p, at string) []document.Problem {
	if p == "" || path.IsAbs(p) {
		return nil
	}
	return []document.Problem{{
		Path: at, Msg: fmt.Sprintf("not supported: %s is a relative path", explain.Describe(p)),
		Hint: fmt.Sprintf("use an absolute path, as in %q", path.Join("/srv", path.Join("/", p))),
	}}
}

// RelativePaths does the same for the directory of a PersistentVolume.
func RelativePaths(s *corev1.PersistentVolumeSource, it document.Item) []document.Problem {
	switch {
	case s.HostPath != nil:
		return RelativePath(s.HostPath.Path, it.Path("spec.hostPath.path"))
	case s.Local != nil:
		return RelativePath(s.Local.Path, it.Path("spec.local.path"))
	}
	return nil
}
