package volumeplan

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

// api is a spec.API.
type api struct {
	ca  string
	err error
}

func (a api) Token(pod *corev1.Pod, t *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	return []byte(string(pod.UID) + " for " + t.Audience), a.err
}
func (a api) RootCA() string                        { return a.ca }
func (api) Variables(*corev1.Pod) map[string]string { return nil }

func TestTheVolumeOfAPodThatUsesTheAPI(t *testing.T) {
	t.Parallel()
	user, other := new(int64(1000)), new(int64(1001))
	for name, c := range map[string]struct {
		edit  func(*corev1.PodSpec)
		api   spec.API
		mode  fs.FileMode
		owner string
		fails string
	}{
		"as it is":   {func(*corev1.PodSpec) {}, api{ca: "pem"}, 0o644, "", ""},
		"of a user":  {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: user} }, api{ca: "pem"}, 0o600, "1000", ""},
		"of a group": {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: user} }, api{ca: "pem"}, 0o600, "", ""},
		"of two users": {func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: user}
			s.Containers[1].SecurityContext = &corev1.SecurityContext{RunAsUser: other}
		}, api{ca: "pem"}, 0o644, "", ""},
		"the API is off":  {func(*corev1.PodSpec) {}, api{ca: "pem", err: errors.New("it is off")}, 0, "", "it is off"},
		"no certificates": {func(*corev1.PodSpec) {}, api{}, 0, "", "kube-root-ca.crt"},
		"there is no API": {func(*corev1.PodSpec) {}, nil, 0, "", "does not run here"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
		pod.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}}
		c.edit(&pod.Spec)
		manifests.AddTokenVolume(&pod.Spec)
		in := spec.Input{Pod: pod, Refs: &manifests.Refs{}, Host: spectest.Host(), API: c.api}
		files, err := Files(in, &pod.Spec.Volumes[0].VolumeSource)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		token := files["token"]
		owner := ""
		if token.UID != nil {
			owner = fmt.Sprint(*token.UID)
		}
		if err != nil || string(token.Data) != "u for " || token.Mode != c.mode || owner != c.owner || string(files["ca.crt"].Data) != "pem" || string(files["namespace"].Data) != "ns" {
			t.Errorf("%s: %v, %v of %q", name, err, files, owner)
		}
		if err := CheckFiles(in, []Plan{{Name: "v", Files: &pod.Spec.Volumes[0].VolumeSource}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
