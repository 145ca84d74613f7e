package spec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestContainersAreFoundByTheirNames(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Image: "1"}},
		Containers:     []corev1.Container{{Name: "app", Image: "2"}, {Name: "sidecar", Image: "3"}},
	}}
	for name, image := range map[string]string{"init": "1", "app": "2", "sidecar": "3"} {
		c, err := FindContainer(pod, name)
		if err != nil || c.Image != image {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	c, err := FindContainer(pod, "app")
	if err != nil || c != &pod.Spec.Containers[0] {
		t.Errorf("it is a copy: %v", err)
	}
	if c, err := FindContainer(pod, "other"); c != nil || err == nil || err.Error() != "container other not found" {
		t.Errorf("%+v, %v", c, err)
	}
}
