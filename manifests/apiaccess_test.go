package manifests_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

func TestTheVolumeWithTheToken(t *testing.T) {
	t.Parallel()
	own := corev1.VolumeMount{Name: "own", MountPath: manifests.TokenMount}
	for name, c := range map[string]struct {
		edit    func(*corev1.PodSpec)
		volumes int
		mounts  [2]string
	}{
		"all containers":     {func(*corev1.PodSpec) {}, 1, [2]string{"kube-api-access-monopod", "kube-api-access-monopod"}},
		"one mounts its own": {func(s *corev1.PodSpec) { s.InitContainers[0].VolumeMounts = []corev1.VolumeMount{own} }, 1, [2]string{"own", "kube-api-access-monopod"}},
		"it is switched off": {func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = new(false) }, 0, [2]string{}},
		"it is asked for":    {func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = new(true) }, 1, [2]string{"kube-api-access-monopod", "kube-api-access-monopod"}},
		"all mount their own": {func(s *corev1.PodSpec) {
			s.InitContainers[0].VolumeMounts, s.Containers[0].VolumeMounts = []corev1.VolumeMount{own}, []corev1.VolumeMount{own}
		}, 0, [2]string{"own", "own"}},
	} {
		s := &corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{{Name: "c"}}}
		c.edit(s)
		manifests.AddTokenVolume(s)
		var mounts [2]string
		for i, one := range []corev1.Container{s.InitContainers[0], s.Containers[0]} {
			if len(one.VolumeMounts) > 0 {
				mounts[i] = one.VolumeMounts[0].Name
			}
		}
		if len(s.Volumes) != c.volumes || mounts != c.mounts {
			t.Errorf("%s: %+v, %v", name, s.Volumes, mounts)
		}
		if want := int64(3607 * c.volumes); manifests.ShortestToken(s) != want {
			t.Errorf("%s: %d s", name, manifests.ShortestToken(s))
		}
	}
}

func TestValuesOfTheAnnotation(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"view": "view", "edit": "edit", "admin": "admin", "rules": "rules", "": "", "root": "", "View": ""} {
		if got := manifests.APIAccess(map[string]string{manifests.AnnotationAPIAccess: value}); got != want {
			t.Errorf("%q: %q", value, got)
		}
	}
	if manifests.APIAccess(nil) != "" {
		t.Error("without annotation")
	}
}
