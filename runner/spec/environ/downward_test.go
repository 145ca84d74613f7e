package environ

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/runner/spec/spectest"
)

func TestNeedsIPs(t *testing.T) {
	field := func(path string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}}
	}
	for path, want := range map[string]bool{"status.podIP": true, "status.podIPs": true, "status.hostIP": false, "metadata.name": false} {
		pod := spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) { c.Env = field(path) })
		if got := NeedsIPs(pod, "app"); got != want {
			t.Errorf("NeedsIPs with %s = %t", path, got)
		}
		pod.Spec.HostNetwork = true
		if NeedsIPs(pod, "app") {
			t.Errorf("NeedsIPs with %s in the host network", path)
		}
	}
	if NeedsIPs(spectest.Pod(nil), "app") || NeedsIPs(spectest.Pod(nil), "other") {
		t.Error("NeedsIPs without variables")
	}
}

func TestResourceFields(t *testing.T) {
	tests := []struct{ resource, divisor, want string }{
		{"requests.cpu", "", "1"},
		{"requests.cpu", "1m", "250"},
		{"limits.cpu", "1m", "2000"},
		{"limits.cpu", "3", "1"},
		{"requests.memory", "", "67108865"},
		{"requests.memory", "1Mi", "65"},
		{"requests.memory", "1", "67108865"},
		{"limits.memory", "1Gi", "8"},
		{"requests.ephemeral-storage", "", "0"},
		{"limits.ephemeral-storage", "1Gi", "100"},
		{"limits.hugepages-2Mi", "", "0"},
	}
	for _, tt := range tests {
		t.Run(tt.resource+" in "+tt.divisor, func(t *testing.T) {
			pod := spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) { c.Resources.Requests = spectest.Amounts("250m", "67108865") })
			in := spectest.Input(pod, "app")
			in.Host.EphemeralStorageBytes = 100 << 30
			ref := &corev1.ResourceFieldSelector{Resource: tt.resource}
			if tt.divisor != "" {
				ref.Divisor = resource.MustParse(tt.divisor)
			}
			got, err := Resource(in, &pod.Spec.Containers[0], ref)
			if err != nil || got != tt.want {
				t.Errorf("resourceValue = %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}
