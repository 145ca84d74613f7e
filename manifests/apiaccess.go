package manifests

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationAPIAccess gives a pod access to the Kubernetes API of this machine. Its value is the role of its token: one of APIAccesses.
const AnnotationAPIAccess = "monopod.dev/api-access"

// AnnotationNamespaceAccess is the role that the configuration gives to pods of a namespace without AnnotationAPIAccess. Only monopod
// itself sets it, each time it reads a manifest.
const AnnotationNamespaceAccess = "monopod.dev/namespace-api-access"

// Values of AnnotationAPIAccess.
const (
	APIAccessView  = "view"
	APIAccessEdit  = "edit"
	APIAccessAdmin = "admin"
	// APIAccessRules gives no role: only the rules of the configuration for the service account apply.
	APIAccessRules = "rules"
)

// APIAccesses are the values of AnnotationAPIAccess.
func APIAccesses() []string {
	return []string{APIAccessView, APIAccessEdit, APIAccessAdmin, APIAccessRules}
}

// APIAccess returns the API access that annotations give to a pod; empty if it gets no token.
func APIAccess(annotations map[string]string) string {
	v, given := annotations[AnnotationAPIAccess]
	if !given {
		v = annotations[AnnotationNamespaceAccess]
	}
	if slices.Contains(APIAccesses(), v) {
		return v
	}
	return ""
}

const (
	// TokenMount is the directory where clients look for their service account token.
	TokenMount = "/var/run/secrets/kubernetes.io/serviceaccount"
	// TokenVolumePrefix is the name prefix of generated token volumes.
	TokenVolumePrefix = "kube-api-access-"
	// RootCAName is the ConfigMap with the CA certificates of the API, which exists in every namespace.
	RootCAName = "kube-root-ca.crt"

	tokenVolume = TokenVolumePrefix + "monopod"
	// tokenSeconds is the lifetime of tokens in generated volumes, as in Kubernetes.
	tokenSeconds = 3607
)

// AddTokenVolume adds the volume with token, CA certificates and namespace to a pod and mounts it in its containers, like the
// ServiceAccount admission plug-in of Kubernetes. Containers that mount another volume there keep it.
func AddTokenVolume(spec *corev1.PodSpec) {
	if a := spec.AutomountServiceAccountToken; a != nil && !*a {
		return
	}
	used := false
	for c := range AllContainers(spec) {
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == TokenMount }) {
			continue
		}
		c.VolumeMounts, used = append(c.VolumeMounts, corev1.VolumeMount{Name: tokenVolume, ReadOnly: true, MountPath: TokenMount}), true
	}
	if !used {
		return
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: RootCAName}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}})
}

// ShortestToken returns the shortest lifetime of the tokens in the volumes of a pod, in seconds; 0 if it has none.
func ShortestToken(spec *corev1.PodSpec) int64 {
	shortest := int64(0)
	for i := range spec.Volumes {
		p := spec.Volumes[i].Projected
		if p == nil {
			continue
		}
		for j := range p.Sources {
			if t := p.Sources[j].ServiceAccountToken; t != nil && t.ExpirationSeconds != nil && (shortest == 0 || *t.ExpirationSeconds < shortest) {
				shortest = *t.ExpirationSeconds
			}
		}
	}
	return shortest
}
