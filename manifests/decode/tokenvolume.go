package decode

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/document"
)

// tokenMount is where clients look for the token of their service account.
const tokenMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// tokenVolume is the volume kube-api-access-* that the ServiceAccount admission plugin of an API server adds to pods, as dumps of
// them have it. Its author is not that of the manifest, and without an API server nothing can fill it. The zero value is none.
type tokenVolume struct {
	name  string
	index int
}

// defuseTokenVolume finds the volume and turns it into an emptyDir, so that it causes no errors until it is dropped, and the indexes of
// other volumes stay. A volume of another shape, or one mounted elsewhere, was written by hand.
func defuseTokenVolume(s *corev1.PodSpec) tokenVolume {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if strings.HasPrefix(v.Name, "kube-api-access-") && v.Projected != nil && isTokenProjection(v.Projected.Sources) && onlyAtTokenMount(s, v.Name) {
			v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			return tokenVolume{v.Name, i}
		}
	}
	return tokenVolume{}
}

// isTokenProjection reports whether sources are a token, the certificate of the API server and the name of the namespace.
func isTokenProjection(sources []corev1.VolumeProjection) bool {
	var token, ca, namespace bool
	for _, s := range sources {
		switch {
		case s.ServiceAccountToken != nil:
			token = s.ServiceAccountToken.Path == "token" && s.ServiceAccountToken.Audience == ""
		case s.ConfigMap != nil && s.ConfigMap.Name == "kube-root-ca.crt":
			ca = true
		case s.ConfigMap != nil && s.ConfigMap.Name == "openshift-service-ca.crt":
		case s.DownwardAPI != nil && len(s.DownwardAPI.Items) == 1 && s.DownwardAPI.Items[0].FieldRef != nil:
			namespace = s.DownwardAPI.Items[0].FieldRef.FieldPath == "metadata.namespace"
		default:
			return false
		}
	}
	return token && ca && namespace
}

func onlyAtTokenMount(s *corev1.PodSpec, volume string) bool {
	for c := range manifests.AllContainers(s) {
		for _, m := range c.VolumeMounts {
			if m.Name == volume && (m.MountPath != tokenMount || m.SubPath != "" || m.SubPathExpr != "") {
				return false
			}
		}
	}
	return true
}

// notes returns the note that the volume is dropped.
func (t tokenVolume) notes(it document.Item) []document.Problem {
	if t.name == "" {
		return nil
	}
	return []document.Problem{{
		Path: it.Path("spec.volumes[" + strconv.Itoa(t.index) + "]"), Msg: "the volume " + t.name + ", which an API server has added, is dropped with its mounts: there is no API server to log in to",
	}}
}

// drop removes the volume and its mounts.
func (t tokenVolume) drop(s *corev1.PodSpec) {
	if t.name == "" {
		return
	}
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == t.name })
	for c := range manifests.AllContainers(s) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == t.name })
	}
}
