package describe

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// volumeText describes a volume in a few words.
func volumeText(v *corev1.Volume) string {
	switch {
	case v.HostPath != nil:
		kind := "any"
		if v.HostPath.Type != nil && *v.HostPath.Type != "" {
			kind = string(*v.HostPath.Type)
		}
		return fmt.Sprintf("hostPath %s (%s)", v.HostPath.Path, kind)
	case v.EmptyDir != nil:
		text := "emptyDir on disk"
		if v.EmptyDir.Medium == corev1.StorageMediumMemory {
			text = "emptyDir in memory"
		}
		if v.EmptyDir.SizeLimit != nil {
			text += ", at most " + v.EmptyDir.SizeLimit.String()
		}
		return text
	case v.ConfigMap != nil:
		return "ConfigMap " + v.ConfigMap.Name + ifOptional(v.ConfigMap.Optional)
	case v.Secret != nil:
		return "Secret " + v.Secret.SecretName + ifOptional(v.Secret.Optional)
	case v.PersistentVolumeClaim != nil:
		return "PersistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return "ephemeral, with a PersistentVolumeClaim of its own"
	case v.DownwardAPI != nil:
		return "downwardAPI"
	case v.Projected != nil:
		return "projected: " + strings.Join(projectedTexts(v.Projected.Sources), ", ")
	case v.Image != nil:
		return "image " + v.Image.Reference
	case v.NFS != nil:
		return fmt.Sprintf("nfs %s:%s", v.NFS.Server, v.NFS.Path)
	case v.ISCSI != nil:
		return fmt.Sprintf("iscsi %s, %s, lun %d", v.ISCSI.TargetPortal, v.ISCSI.IQN, v.ISCSI.Lun)
	default:
		return "another type; see -o yaml"
	}
}

func ifOptional(optional *bool) string {
	if optional != nil && *optional {
		return " (optional)"
	}
	return ""
}

// projectedTexts describes the sources of a projected volume.
func projectedTexts(sources []corev1.VolumeProjection) []string {
	var all []string
	for i := range sources {
		switch s := &sources[i]; {
		case s.ConfigMap != nil:
			all = append(all, "ConfigMap "+s.ConfigMap.Name+ifOptional(s.ConfigMap.Optional))
		case s.Secret != nil:
			all = append(all, "Secret "+s.Secret.Name+ifOptional(s.Secret.Optional))
		case s.DownwardAPI != nil:
			all = append(all, "downwardAPI")
		case s.ServiceAccountToken != nil:
			all = append(all, "token")
		default:
			all = append(all, "another source")
		}
	}
	return all
}
