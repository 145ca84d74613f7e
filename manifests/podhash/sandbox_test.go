package podhash_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/manifesttest"
	"monopod/manifests/podhash"
)

func TestWhatReplacesTheWholePod(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, uid: a}\nspec:\n  initContainers: [{name: i, image: x}]\n  containers: [{name: c, image: x, ports: [{containerPort: 1, hostPort: 2}]}]\n"
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
		want   bool
	}{
		{"a label", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		{"an annotation", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		{"the image of a container", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "y" }, false},
		{"a host port", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 3 }, true},
		{"the image of an init container", func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "y" }, true},
		{"the network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, true},
		{"the uid", func(p *corev1.Pod) { p.UID = "b" }, true},
	} {
		was := manifesttest.Pod(t, pod)
		now := was.DeepCopy()
		tt.change(now)
		if got := podhash.Sandbox(was) != podhash.Sandbox(now); got != tt.want {
			t.Errorf("%s replaces the pod: %v", tt.name, got)
		}
	}
}
