package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources makes requirements from cpu and memory texts; an empty text leaves the entry out.
func resources(reqCPU, reqMem, limCPU, limMem string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: amounts(reqCPU, reqMem), Limits: amounts(limCPU, limMem)}
}

func amounts(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func TestQOSClass(t *testing.T) {
	full := resources("1", "1Gi", "1", "1Gi")
	tests := []struct {
		name       string
		containers []corev1.ResourceRequirements
		inits      []corev1.ResourceRequirements
		pod        *corev1.ResourceRequirements
		want       corev1.PodQOSClass
	}{
		{name: "nothing asked is best effort", containers: []corev1.ResourceRequirements{{}}, want: corev1.PodQOSBestEffort},
		{name: "zero quantities count as nothing", containers: []corev1.ResourceRequirements{resources("0", "0", "", "")}, want: corev1.PodQOSBestEffort},
		{
			name: "resources other than cpu and memory count as nothing",
			containers: []corev1.ResourceRequirements{{Limits: corev1.ResourceList{
				corev1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
			}}},
			want: corev1.PodQOSBestEffort,
		},
		{name: "equal requests and limits are guaranteed", containers: []corev1.ResourceRequirements{full}, want: corev1.PodQOSGuaranteed},
		{name: "limits alone are guaranteed", containers: []corev1.ResourceRequirements{resources("", "", "1", "1Gi")}, want: corev1.PodQOSGuaranteed},
		{name: "the same amount written differently is equal", containers: []corev1.ResourceRequirements{resources("1000m", "1024Mi", "1", "1Gi")}, want: corev1.PodQOSGuaranteed},
		{name: "a request below its limit is burstable", containers: []corev1.ResourceRequirements{resources("500m", "1Gi", "1", "1Gi")}, want: corev1.PodQOSBurstable},
		{name: "a request of zero below a limit is burstable", containers: []corev1.ResourceRequirements{resources("0", "1Gi", "1", "1Gi")}, want: corev1.PodQOSBurstable},
		{name: "memory without cpu is burstable", containers: []corev1.ResourceRequirements{resources("", "1Gi", "", "1Gi")}, want: corev1.PodQOSBurstable},
		{name: "a request alone is burstable", containers: []corev1.ResourceRequirements{resources("250m", "", "", "")}, want: corev1.PodQOSBurstable},
		{name: "one container without limits makes the pod burstable", containers: []corev1.ResourceRequirements{full, {}}, want: corev1.PodQOSBurstable},
		{name: "init containers count", containers: []corev1.ResourceRequirements{full}, inits: []corev1.ResourceRequirements{{}}, want: corev1.PodQOSBurstable},
		{name: "init containers alone make a pod burstable", containers: []corev1.ResourceRequirements{{}}, inits: []corev1.ResourceRequirements{full}, want: corev1.PodQOSBurstable},
		{name: "pod resources replace those of containers", containers: []corev1.ResourceRequirements{{}}, pod: &full, want: corev1.PodQOSGuaranteed},
		{name: "empty pod resources change nothing", containers: []corev1.ResourceRequirements{full}, pod: &corev1.ResourceRequirements{}, want: corev1.PodQOSGuaranteed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Resources: tt.pod}}
			for _, r := range tt.containers {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: r})
			}
			for _, r := range tt.inits {
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Resources: r})
			}
			p.Status.QOSClass = corev1.PodQOSGuaranteed // must not matter
			if got := QOSClass(p); got != tt.want {
				t.Errorf("QOSClass = %s, want %s", got, tt.want)
			}
		})
	}
}
