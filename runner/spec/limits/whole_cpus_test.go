package limits

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestWholeCPUs(t *testing.T) {
	for _, c := range []struct {
		name             string
		requests, limits corev1.ResourceList
		init             *corev1.ContainerRestartPolicy
		asInit           bool
		want             int
	}{
		{"whole", spectest.Amounts("2", "1Mi"), spectest.Amounts("2", "1Mi"), nil, false, 2},
		{"a part", spectest.Amounts("1500m", "1Mi"), spectest.Amounts("1500m", "1Mi"), nil, false, 0},
		{"burstable", spectest.Amounts("2", ""), spectest.Amounts("2", ""), nil, false, 0},
		{"a sidecar", spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"), ptr.To(corev1.ContainerRestartPolicyAlways), true, 1},
		{"an init container", spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"), nil, true, 0},
	} {
		sure := corev1.Container{Name: "sure", Resources: spectest.Requirements(spectest.Amounts("500m", "1Mi"), spectest.Amounts("500m", "1Mi"))}
		one := corev1.Container{Name: "one", Resources: spectest.Requirements(c.requests, c.limits), RestartPolicy: c.init}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{sure}}}
		if c.asInit {
			pod.Spec.InitContainers = []corev1.Container{one}
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, one)
		}
		if got := WholeCPUs(pod, "one"); got != c.want || WholeCPUs(pod, "sure") != 0 {
			t.Errorf("%s: %d", c.name, got)
		}
		host := spec.Host{Enforce: spec.Enforcement{StaticCPUs: true}}
		if v := ForPod(pod, host); (v.Quota == nil) != (c.want > 0) && c.name != "burstable" {
			t.Errorf("%s: the pod's quota is %v", c.name, v.Quota)
		}
	}
}
