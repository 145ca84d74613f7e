package podstatus_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/podstatus"
)

// amounts returns a list of cpu and memory; an empty one is absent.
func amounts(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			list[name] = resource.MustParse(q)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// required returns these requests and limits.
func required(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// TestResourcesOfAPodInItsStatus has what a kubelet 1.37 reports: generateAPIPodStatus and convertToAPIPodLevelResourcesStatus.
func TestResourcesOfAPodInItsStatus(t *testing.T) {
	runs, waits := []runner.Container{running("1", "a", 3)}, []runner.Container{created("1", "a")}
	tests := []struct {
		name           string
		pod, container corev1.ResourceRequirements
		overhead       corev1.ResourceList
		actual         *corev1.ResourceRequirements
		instances      []runner.Container
		allocated      corev1.ResourceList
		want           corev1.ResourceRequirements
	}{
		{name: "no resources at all", instances: runs, actual: &corev1.ResourceRequirements{}},
		{
			name: "it does not run: all that the containers and the pod ask for", instances: waits,
			container: required(amounts("1", "1Gi"), amounts("3", "3Gi")), pod: required(amounts("2", ""), amounts("", "4Gi")),
			allocated: amounts("2", "1Gi"), want: required(amounts("2", "1Gi"), amounts("3", "4Gi")),
		},
		{
			name: "it does not run: what its runtime needs is added, to limits only where there are some", instances: waits,
			container: required(amounts("1", ""), nil), pod: required(nil, amounts("", "4Gi")), overhead: amounts("100m", "1Gi"),
			allocated: amounts("1100m", "1Gi"), want: required(amounts("1100m", "1Gi"), amounts("", "5Gi")),
		},
		{
			name: "it runs: what the cgroup has", instances: runs,
			pod: required(amounts("2", "2Gi"), amounts("4", "4Gi")), actual: new(required(amounts("1", ""), amounts("3", "3Gi"))),
			allocated: amounts("2", "2Gi"), want: required(amounts("1", "2Gi"), amounts("3", "3Gi")),
		},
		{
			name: "it runs: the cgroup has the sums of the containers, and there is no cgroup of requested memory", instances: runs,
			container: required(amounts("1", "1Gi"), amounts("2", "")), actual: new(required(amounts("1", ""), amounts("2", ""))),
			allocated: amounts("1", "1Gi"), want: required(amounts("1", "1Gi"), amounts("2", "")),
		},
		{
			name: "it runs: next to nothing is not shown", instances: runs,
			container: required(amounts("2m", ""), amounts("10m", "")), actual: new(required(amounts("2m", ""), amounts("10m", ""))),
			allocated: amounts("2m", ""),
		},
		{
			name: "it runs: next to nothing is shown as it is written", instances: runs,
			pod: required(amounts("1m", ""), amounts("5m", "")), actual: new(required(amounts("2m", ""), amounts("10m", ""))),
			allocated: amounts("1m", ""), want: required(amounts("1m", ""), amounts("5m", "")),
		},
		{
			name: "it runs: next to nothing is shown where more is written", instances: runs,
			pod: required(amounts("4m", ""), amounts("20m", "")), actual: new(required(amounts("2m", ""), amounts("10m", ""))),
			allocated: amounts("4m", ""), want: required(amounts("2m", ""), amounts("10m", "")),
		},
		{
			name: "it runs, and the cgroup is unknown: what is written", instances: runs,
			pod: required(amounts("2", ""), amounts("4", "")), container: required(amounts("", "1Gi"), nil),
			allocated: amounts("2", "1Gi"), want: required(amounts("2", "1Gi"), amounts("4", "")),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := statusCase{instances: tt.instances}.input("a")
			in.Desired = edited(in.Desired, func(p *corev1.Pod) {
				p.Spec.Resources, p.Spec.Containers[0].Resources, p.Spec.Overhead = &tt.pod, tt.container, tt.overhead
			})
			in.Sandbox.Pod, in.Sandbox.Resources = in.Desired, tt.actual
			got := podstatus.Of(in).Pod.Status
			if diff := cmp.Diff(tt.allocated, got.AllocatedResources); diff != "" {
				t.Errorf("allocated (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&tt.want, got.Resources); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnEditThatMayNotBeAppliedAllocatesNothing has the resources of the recorded manifest while the desired one waits.
func TestAnEditThatMayNotBeAppliedAllocatesNothing(t *testing.T) {
	sized := func(cpu string) *manifests.Pod {
		return edited(testPod("p", testContainer("a", "")), func(p *corev1.Pod) {
			p.Spec.Resources = new(required(amounts(cpu, ""), nil))
			p.Spec.Containers[0].Resources = required(amounts(cpu, ""), nil)
		})
	}
	in := statusCase{instances: []runner.Container{running("1", "a", 3)}}.input("a")
	in.Desired, in.Sandbox.Pod, in.Sandbox.Resources = sized("9"), sized("1"), new(required(amounts("1", ""), nil))
	in.Held, in.Kept = &runner.Held{Reason: "OutOfcpu"}, true
	got := podstatus.Of(in).Pod.Status
	if a := got.AllocatedResources.Cpu().String() + " " + got.ContainerStatuses[0].AllocatedResources.Cpu().String(); a != "1 1" {
		t.Errorf("pod and container have allocated %s", a)
	}
	in.Sandbox, in.Containers, in.Kept = nil, nil, false
	if got := podstatus.Of(in).Pod.Status; got.AllocatedResources != nil || got.Resources != nil {
		t.Errorf("a pod that may not start has %v, allocated %v", got.Resources, got.AllocatedResources)
	}
	in.Held = nil
	if got := podstatus.Of(in).Pod.Status; got.AllocatedResources.Cpu().String() != "9" {
		t.Errorf("a pod that is about to start has allocated %v", got.AllocatedResources)
	}
}

// TestAResizeThatMayNotBeAppliedIsPending has the condition of a kubelet for a resize that it cannot allocate now, or ever.
func TestAResizeThatMayNotBeAppliedIsPending(t *testing.T) {
	sized := func(cpu, image string) *manifests.Pod {
		return edited(testPod("p", testContainer("a", "")), func(p *corev1.Pod) {
			p.Spec.Resources, p.Spec.Containers[0].Image = new(required(amounts(cpu, ""), nil)), image
		})
	}
	large := cause.Cause{Kind: cause.OutOfResource, Fault: cause.TooLarge}
	for _, tt := range []struct {
		name    string
		desired *manifests.Pod
		held    *runner.Held
		want    string
	}{
		{"it does not fit now", sized("9", "busybox:1"), &runner.Held{Message: "no cpu"}, "PodResizePending=True Deferred no cpu"},
		{"it never fits", sized("9", "busybox:1"), &runner.Held{Message: "no cpu", Cause: large}, "PodResizePending=True Infeasible no cpu"},
		{"another edit waits", sized("1", "busybox:2"), &runner.Held{Message: "wait"}, ""},
	} {
		in := statusCase{instances: []runner.Container{running("1", "a", 3)}}.input("a")
		in.Desired, in.Sandbox.Pod, in.Held, in.Kept = tt.desired, sized("1", "busybox:1"), tt.held, true
		in.Sandbox.Hash = podhash.Sandbox(in.Sandbox.Pod.Object)
		got := ""
		for _, c := range podstatus.Of(in).Pod.Status.Conditions {
			if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				got += fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestResourcesOfAContainerInItsStatus has what convertContainerStatusResources of a kubelet 1.37 reports.
func TestResourcesOfAContainerInItsStatus(t *testing.T) {
	old, now := required(amounts("1", "1Gi"), amounts("", "2Gi")), required(amounts("2", "1Gi"), amounts("", "3Gi"))
	has := func(c runner.Container, r *corev1.ResourceRequirements) runner.Container {
		c.Resources = r
		return c
	}
	for _, tt := range []struct {
		name      string
		of        corev1.ResourceRequirements
		instance  runner.Container
		allocated corev1.ResourceList
		want      corev1.ResourceRequirements
	}{
		{"none of its own", corev1.ResourceRequirements{}, has(running("1", "a", 3), &corev1.ResourceRequirements{}), nil, corev1.ResourceRequirements{}},
		{"it runs with others than are allocated", now, has(running("1", "a", 3), &old), amounts("2", "1Gi"), old},
		{"what it runs with is unknown", now, has(running("1", "a", 3), nil), amounts("2", "1Gi"), now},
		{"it has ended", now, has(exited("1", "a", 1, 3), &old), amounts("2", "1Gi"), now},
		{"it is about to start", now, has(created("1", "a"), &old), amounts("2", "1Gi"), now},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := statusCase{instances: []runner.Container{tt.instance}}.input("a")
			in.Desired = edited(in.Desired, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = tt.of })
			got := podstatus.Of(in).Pod.Status.ContainerStatuses[0]
			if diff := cmp.Diff(tt.allocated, got.AllocatedResources); diff != "" {
				t.Errorf("allocated (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&tt.want, got.Resources); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}
