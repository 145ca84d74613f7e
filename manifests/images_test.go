package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWithRefsKeepsTheImages(t *testing.T) {
	pod := &Pod{Object: &corev1.Pod{}, Images: map[string]string{"a": "sha256:a"}}
	pod.Object.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}},
	}}}
	objects := NewObjects([]*Object{{Object: &corev1.ConfigMap{}, Kind: "ConfigMap"}})
	got := WithRefs(pod, nil, objects)
	if got == pod || !SameImages(got, pod) {
		t.Fatalf("%+v", got)
	}
	if again := WithRefs(pod, got, objects); again != got {
		t.Error("the same pod is another one")
	}
	other := &Pod{Object: pod.Object, Images: map[string]string{"a": "sha256:b"}}
	if now := WithRefs(other, got, objects); now == got || !SameImages(now, other) {
		t.Errorf("another digest: %+v", now)
	}
}
