package manifests_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/manifests/manifesttest"
)

// printed returns a list as text.
func printed(list corev1.ResourceList) map[string]string {
	all := map[string]string{}
	for name, q := range list {
		all[string(name)] = q.String()
	}
	return all
}

func TestRequestsAndLimitsOfAPod(t *testing.T) {
	const whole = "\n  resources: {requests: {cpu: \"9\"}, limits: {memory: 9Gi}}\n"
	for _, tt := range []struct {
		name string
		of   func(*corev1.PodSpec) corev1.ResourceList
		text string
		want map[string]string
	}{
		// migrate runs alone with 4 CPUs; warm runs beside proxy with 3 GiB.
		{"requests", manifests.PodRequests, shop, map[string]string{"cpu": "4", "memory": "3Gi"}},
		{"limits", manifests.PodLimits, shop, map[string]string{"memory": "4Gi"}},
		{"requests of the pod itself", manifests.PodRequests, shop + whole, map[string]string{"cpu": "9", "memory": "3Gi"}},
		{"limits of the pod itself", manifests.PodLimits, shop + whole, map[string]string{"memory": "9Gi"}},
		{"the containers alone: requests", manifests.AggregateRequests, shop + whole, map[string]string{"cpu": "4", "memory": "3Gi"}},
		{"the containers alone: limits", manifests.AggregateLimits, shop + whole, map[string]string{"memory": "4Gi"}},
	} {
		if diff := cmp.Diff(tt.want, printed(tt.of(&manifesttest.Pod(t, tt.text).Spec))); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestAllLimited(t *testing.T) {
	for limit, want := range map[string]bool{
		"":                                   false,
		"resources: {limits: {cpu: \"0\"}}":  false,
		"resources: {limits: {cpu: \"1\"}}":  true,
		"resources: {limits: {memory: 1Mi}}": false,
	} {
		pod := manifesttest.Pod(t, "apiVersion: v1\nkind: Pod\nspec:\n  containers: [{name: a, image: i}]\n  "+limit+"\n")
		if got := manifests.AllLimited(&pod.Spec, corev1.ResourceCPU); got != want {
			t.Errorf("%q: %v", limit, got)
		}
	}
	if !manifests.AllLimited(&manifesttest.Pod(t, `{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}}`).Spec, corev1.ResourceCPU) {
		t.Error("the only container has a limit")
	}
}

// TestAggregateIsThePeakOfAnyMoment compares with a simulation: who runs at each moment of the pod's life.
func TestAggregateIsThePeakOfAnyMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		container := func(name string, sidecar bool) corev1.Container {
			c := corev1.Container{Name: name}
			if n := rapid.Int64Range(0, 5).Draw(t, name); n > 0 {
				c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(n, resource.DecimalSI)}
			}
			if always := corev1.ContainerRestartPolicyAlways; sidecar {
				c.RestartPolicy = &always
			}
			return c
		}
		var spec corev1.PodSpec
		for i := range rapid.IntRange(0, 4).Draw(t, "init containers") {
			spec.InitContainers = append(spec.InitContainers, container(fmt.Sprintf("i%d", i), rapid.Bool().Draw(t, "sidecar")))
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
			spec.Containers = append(spec.Containers, container(fmt.Sprintf("c%d", i), false))
		}
		cpu := func(c *corev1.Container) int64 { return c.Resources.Requests.Cpu().Value() }
		var peak, sidecars int64
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			peak = max(peak, sidecars+cpu(c))
			if manifests.IsSidecar(c) {
				sidecars += cpu(c)
			}
		}
		now := sidecars
		for i := range spec.Containers {
			now += cpu(&spec.Containers[i])
		}
		if got := manifests.AggregateRequests(&spec); got.Cpu().Value() != max(peak, now) {
			t.Fatalf("%s CPUs, want %d", got.Cpu(), max(peak, now))
		}
	})
}

func TestNamesOfResources(t *testing.T) {
	for name, device := range map[corev1.ResourceName]bool{
		"example.com/gpu": true, "example.com/": false, "cpu": false, "kubernetes.io/x": false, "a.kubernetes.io/x": false, "hugepages-2Mi": false,
	} {
		if got := manifests.IsDeviceKind(name); got != device {
			t.Errorf("%s is a device: %v", name, got)
		}
	}
	for name, huge := range map[corev1.ResourceName]bool{"hugepages-2Mi": true, "memory": false, "example.com/hugepages-2Mi": false} {
		if got := manifests.IsHugePage(name); got != huge {
			t.Errorf("%s is huge pages: %v", name, got)
		}
	}
	r := manifests.Resizable(corev1.ResourceRequirements{Limits: corev1.ResourceList{
		"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), "example.com/gpu": resource.MustParse("1"),
	}})
	if diff := cmp.Diff(map[string]string{"cpu": "1", "memory": "1Gi"}, printed(r.Limits)); diff != "" || r.Requests != nil {
		t.Errorf("resizable: %s, requests %v", diff, r.Requests)
	}
}
