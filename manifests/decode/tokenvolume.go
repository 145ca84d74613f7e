package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/document"
)

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
		if strings.HasPrefix(v.Name, manifests.TokenVolumePrefix) && v.Projected != nil && isTokenProjection(v.Projected.Sources) && onlyAtTokenMount(s, v.Name) {
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
		case s.ConfigMap != nil && s.ConfigMap.Name == manifests.RootCAName:
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
			if m.Name == volume && (m.MountPath != manifests.TokenMount || m.SubPath != "" || m.SubPathExpr != "") {
				return false
			}
		}
	}
	return true
}

// notes returns the note that the volume is dropped. A pod that uses the API of this machine gets a new one.
func (t tokenVolume) notes(access string, it document.Item) []document.Problem {
	if t.name == "" || access != "" {
		return nil
	}
	return []document.Problem{{
		Path: it.Path("spec.volumes[" + strconv.Itoa(t.index) + "]"), Msg: "the volume " + t.name + ", which was added by an API server, is removed with its mounts: without the annotation " + manifests.AnnotationAPIAccess + " the pod gets no token",
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

// apiAccess refuses invalid values of the API access annotation, and pods that may not have it.
func apiAccess(l *loader, pod *corev1.Pod, it document.Item) []document.Problem {
	value, given := pod.Annotations[manifests.AnnotationAPIAccess]
	path := it.Path("metadata.annotations[" + manifests.AnnotationAPIAccess + "]")
	switch {
	case !given || l.author == AuthorAPIServer: // pods bound by an API server use that server
		return nil
	case manifests.APIAccess(pod.Annotations) == "":
		return []document.Problem{{Path: path, Msg: fmt.Sprintf("%q is not supported", value), Hint: "use " + strings.Join(manifests.APIAccesses(), ", ")}}
	}
	return l.policy.APIAccess(path)
}

// grant annotates pods, also those of workloads, with the API access that the configuration gives to their namespace.
func grant(l *loader, meta *metav1.ObjectMeta, namespace string) {
	if l.author == AuthorWorkload { // the workload is annotated
		return
	}
	delete(meta.Annotations, manifests.AnnotationNamespaceAccess)
	v := l.policy.AccessIn(cmp.Or(namespace, metav1.NamespaceDefault))
	if _, own := meta.Annotations[manifests.AnnotationAPIAccess]; v == "" || own || l.author == AuthorAPIServer {
		return
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[manifests.AnnotationNamespaceAccess] = v
}

// identify sets the default service account of a pod that uses the API of this machine.
func identify(a Author, pod *corev1.Pod) {
	if s := &pod.Spec; a != AuthorAPIServer && s.ServiceAccountName == "" && s.DeprecatedServiceAccount == "" && manifests.APIAccess(pod.Annotations) != "" {
		s.ServiceAccountName = "default"
	}
}

// addToken adds the token volume to a pod that uses the API of this machine.
func addToken(a Author, pod *corev1.Pod) {
	if a != AuthorAPIServer && manifests.APIAccess(pod.Annotations) != "" {
		manifests.AddTokenVolume(&pod.Spec)
	}
}
