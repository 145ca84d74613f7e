package build

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/runner/spec/spectest"
)

func TestHugePagesThatTheMachineDoesNotHaveAreRefused(t *testing.T) {
	limits := corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"), "memory": resource.MustParse("1Mi")}
	for of, pod := range map[string]*corev1.Pod{
		"container": spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) { c.Resources.Limits = limits }),
		"pod": spectest.Pod(func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: limits}
		}),
	} {
		in := spectest.Input(pod, "app")
		if _, err := Spec(in); err == nil {
			t.Errorf("%s: accepted without a hugetlb controller", of)
		}
		in.Host.HugePageSizes = []int64{2 << 20}
		s, err := Spec(in)
		if err != nil || len(s.Linux.Resources.HugepageLimits) != 1 || s.Linux.Resources.HugepageLimits[0].Limit != 4<<20 {
			t.Errorf("%s: %+v, %v", of, s, err)
		}
	}
}
