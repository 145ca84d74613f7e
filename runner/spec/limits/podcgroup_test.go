package limits

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

// text prints the values of a cgroup.
func (v Values) text() string {
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("shares %d quota %s/%d memory %s min %d low %d pids %s %v",
		v.Shares, number(v.Quota), v.Period, number(v.Memory), v.MemoryMin, v.MemoryLow, number(v.Pids), v.Hugepages)
}

func TestPodCgroup(t *testing.T) {
	sidecar := func(name string, r corev1.ResourceRequirements) corev1.Container {
		return corev1.Container{Name: name, Resources: r, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
	}
	tests := []struct {
		name string
		spec corev1.PodSpec
		host spec.Host
		want string
	}{
		{"best effort", corev1.PodSpec{Containers: []corev1.Container{{}}}, spec.Host{}, "shares 2 quota -/100000 memory - min 0 low 0 pids - map[]"},
		{"guaranteed: sums", corev1.PodSpec{Containers: []corev1.Container{
			{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}, {Resources: spectest.Requirements(spectest.Amounts("500m", "2Mi"), spectest.Amounts("500m", "2Mi"))},
		}}, spec.Host{}, "shares 1536 quota 150000/100000 memory 3145728 min 0 low 0 pids - map[]"},
		{"burstable: one container without a limit leaves the pod without", corev1.PodSpec{Containers: []corev1.Container{
			{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}, {Resources: spectest.Requirements(spectest.Amounts("500m", ""), spectest.Amounts("", "2Mi"))},
		}}, spec.Host{}, "shares 1536 quota -/100000 memory 3145728 min 0 low 0 pids - map[]"},
		{"an init container that needs more than the others", corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "i", Resources: spectest.Requirements(spectest.Amounts("3", "9Mi"), spectest.Amounts("3", "9Mi"))}},
			Containers:     []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}},
		}, spec.Host{}, "shares 3072 quota 300000/100000 memory 9437184 min 0 low 0 pids - map[]"},
		{"sidecars run beside both", corev1.PodSpec{
			InitContainers: []corev1.Container{
				sidecar("s", spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))),
				{Name: "i", Resources: spectest.Requirements(spectest.Amounts("3", "1Mi"), spectest.Amounts("3", "1Mi"))},
			},
			Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "9Mi"), spectest.Amounts("1", "9Mi"))}},
		}, spec.Host{}, "shares 4096 quota 400000/100000 memory 10485760 min 0 low 0 pids - map[]"},
		{"the pod's own come first", corev1.PodSpec{
			Resources:  new(spectest.Requirements(spectest.Amounts("2", "8Mi"), spectest.Amounts("4", "16Mi"))),
			Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", ""), nil)}, {}},
		}, spec.Host{}, "shares 2048 quota 400000/100000 memory 16777216 min 0 low 0 pids - map[]"},
		{"what the runtime needs comes on top", corev1.PodSpec{
			Overhead:   spectest.Amounts("500m", "1Mi"),
			Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}},
		}, spec.Host{}, "shares 1536 quota 150000/100000 memory 2097152 min 0 low 0 pids - map[]"},
		{
			"no quotas",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}}},
			spec.Host{Enforce: spec.Enforcement{NoCPUQuota: true, PodPidsLimit: 9}},
			"shares 1024 quota -/100000 memory 1048576 min 0 low 0 pids 9 map[]",
		},
		{
			"another period",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}}},
			spec.Host{Enforce: spec.Enforcement{CPUPeriod: 5000}},
			"shares 1024 quota 5000/5000 memory 1048576 min 0 low 0 pids - map[]",
		},
		{
			"memory reserved, guaranteed",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), spectest.Amounts("1", "1Mi"))}}},
			spec.Host{Enforce: spec.Enforcement{ReserveMemory: true}},
			"shares 1024 quota 100000/100000 memory 1048576 min 1048576 low 0 pids - map[]",
		},
		{
			"memory reserved, burstable",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("", "1Mi"), nil)}}},
			spec.Host{Enforce: spec.Enforcement{ReserveMemory: true}},
			"shares 2 quota -/100000 memory - min 0 low 1048576 pids - map[]",
		},
		{"huge pages: what is not asked for is forbidden", corev1.PodSpec{Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"), "memory": resource.MustParse("1Mi")}}},
		}}, spec.Host{HugePageSizes: []int64{1 << 30, 2 << 20, 64 << 10}}, "shares 2 quota -/100000 memory 1048576 min 0 low 0 pids - map[1GB:0 2MB:4194304 64KB:0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ForPod(&corev1.Pod{Spec: tt.spec}, tt.host).text(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWiden(t *testing.T) {
	a := Values{Shares: 100, Quota: ptr.To[int64](10), Memory: ptr.To[int64](5), Period: 1, Hugepages: map[string]int64{"2MB": 1, "1GB": 3}}
	b := Values{Shares: 50, Quota: ptr.To[int64](20), Pids: ptr.To[int64](7), Hugepages: map[string]int64{"2MB": 2}}
	if got, want := a.Widen(b).text(), "shares 100 quota 20/1 memory - min 0 low 0 pids - map[1GB:3 2MB:2]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestClassCgroup(t *testing.T) {
	pods := []*corev1.Pod{
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("1", "1Mi"), nil)}}}},
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: spectest.Requirements(spectest.Amounts("250m", "2Mi"), nil)}}}},
	}
	h := spec.Host{Enforce: spec.Enforcement{ReserveMemory: true}}
	if got, want := ForClass(corev1.PodQOSBurstable, pods, h).text(), "shares 1280 quota -/100000 memory - min 0 low 3145728 pids - map[]"; got != want {
		t.Errorf("burstable: got  %s\nwant %s", got, want)
	}
	pods[0].Spec.Overhead = spectest.Amounts("750m", "1Mi")
	if got, want := ForClass(corev1.PodQOSBurstable, pods, h).text(), "shares 2048 quota -/100000 memory - min 0 low 4194304 pids - map[]"; got != want {
		t.Errorf("burstable with overhead: got  %s\nwant %s", got, want)
	}
	if got, want := ForClass(corev1.PodQOSBestEffort, nil, h).text(), "shares 2 quota -/100000 memory - min 0 low 0 pids - map[]"; got != want {
		t.Errorf("best effort: got  %s\nwant %s", got, want)
	}
}

func TestMemoryQuality(t *testing.T) {
	tests := []struct {
		name             string
		requests, limits corev1.ResourceList
		class            string
		enforce          spec.Enforcement
		want             map[string]string
	}{
		{"as delivered", spectest.Amounts("", "100Mi"), spectest.Amounts("", "200Mi"), "", spec.Enforcement{}, map[string]string{"memory.swap.max": "0"}},
		{"one process alone", nil, nil, "", spec.Enforcement{SingleProcessOOMKill: true}, map[string]string{"memory.oom.group": "0"}},
		{"throttled between request and limit", spectest.Amounts("", "100Mi"), spectest.Amounts("", "200Mi"), "", spec.Enforcement{MemoryThrottling: 0.9}, map[string]string{"memory.high": "199229440"}},
		{"throttled by the machine's memory", spectest.Amounts("", "1Gi"), nil, "", spec.Enforcement{MemoryThrottling: 0.5}, map[string]string{"memory.high": "4831838208"}},
		{"guaranteed pods are not throttled", spectest.Amounts("1", "100Mi"), spectest.Amounts("1", "100Mi"), "", spec.Enforcement{MemoryThrottling: 0.9, ReserveMemory: true}, map[string]string{"memory.high": "", "memory.min": "104857600", "memory.low": ""}},
		{"burstable pods are protected softly", spectest.Amounts("", "100Mi"), spectest.Amounts("", "200Mi"), "", spec.Enforcement{ReserveMemory: true}, map[string]string{"memory.low": "104857600", "memory.min": ""}},
		{"a share of the swap", spectest.Amounts("", "1Gi"), spectest.Amounts("", "2Gi"), "", spec.Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "536870912"}},
		{"no swap for what fits into its request", spectest.Amounts("", "1Gi"), spectest.Amounts("", "1Gi"), "", spec.Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "0"}},
		{"no swap for what the machine needs", spectest.Amounts("", "1Gi"), spectest.Amounts("", "2Gi"), "system-cluster-critical", spec.Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "0"}},
		{"no swap for best effort", nil, nil, "", spec.Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.PriorityClassName, c.Resources = tt.class, spectest.Requirements(tt.requests, tt.limits)
			})
			in := spectest.Input(pod, "app")
			in.Host.CgroupV2, in.Host.SwapAccounting, in.Host.SwapBytes, in.Host.Enforce = true, true, 4<<30, tt.enforce
			got := ForContainer(in, &pod.Spec.Containers[0]).Unified
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

func TestResourcesOfThePodStandInForThoseOfAContainer(t *testing.T) {
	pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Resources = new(spectest.Requirements(spectest.Amounts("1", "2Gi"), spectest.Amounts("2", "4Gi")))
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Resources: spectest.Requirements(spectest.Amounts("", "512Mi"), nil)})
	})
	in := spectest.Input(pod, "app")
	r, err := Update(in)
	if err != nil || *r.Memory.Limit != 4<<30 || *r.CPU.Quota != 200_000 {
		t.Errorf("%+v, %v", r, err)
	}
	// of 8 GiB: what the pod requests beyond its containers, 1536 MiB, is shared by both
	for i, want := range []int{907, 844} {
		if got := OOMScoreAdj(spec.Input{Pod: pod, Host: spec.Host{MemoryBytes: 8 << 30, MinOOMScoreAdj: -1000}}, &pod.Spec.Containers[i]); got != want {
			t.Errorf("oom_score_adj of %d is %d, want %d", i, got, want)
		}
	}
}

func TestASidecarIsKilledAfterTheContainersItServes(t *testing.T) {
	pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		c.Resources = spectest.Requirements(spectest.Amounts("", "4Gi"), nil)
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: spectest.Requirements(spectest.Amounts("1", ""), nil)}, {Name: "i"}}
	})
	in := spectest.Input(pod, "app")
	in.Host.MinOOMScoreAdj = -1000
	if side, once := OOMScoreAdj(in, &pod.Spec.InitContainers[0]), OOMScoreAdj(in, &pod.Spec.InitContainers[1]); side != 500 || once != 999 {
		t.Errorf("sidecar %d, init container %d", side, once)
	}
}

func TestWhatAnUpdateSets(t *testing.T) {
	pod := spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) {
		c.Resources = spectest.Requirements(spectest.Amounts("1", ""), nil)
	})
	in := spectest.Input(pod, "app")
	in.Host.SwapAccounting = true
	r, err := Update(in)
	if err != nil || *r.Memory.Limit != -1 || *r.Memory.Swap != -1 || *r.CPU.Quota != -1 || *r.CPU.Shares != 1024 {
		t.Errorf("limits that are gone are not taken away: %+v, %v", r, err)
	}
}

// TestWhatIsInEffect has what a kubelet would read back from the cgroup of a pod.
func TestWhatIsInEffect(t *testing.T) {
	amounts, requirements := spectest.Amounts, spectest.Requirements
	one := corev1.Container{Resources: requirements(amounts("1", "1Mi"), amounts("2", "2Mi"))}
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		host spec.Host
		want corev1.ResourceRequirements
	}{
		{"best effort", corev1.PodSpec{Containers: []corev1.Container{{}}}, spec.Host{}, corev1.ResourceRequirements{}},
		{"sums", corev1.PodSpec{Containers: []corev1.Container{one, one}}, spec.Host{}, requirements(amounts("2", ""), amounts("4", "4Mi"))},
		{"a container without limits", corev1.PodSpec{Containers: []corev1.Container{one, {}}}, spec.Host{}, requirements(amounts("1", ""), nil)},
		{"the pod's own", corev1.PodSpec{
			Resources: new(requirements(amounts("3", "8Mi"), amounts("", "16Mi"))), Containers: []corev1.Container{one, {}},
		}, spec.Host{}, requirements(amounts("3", ""), amounts("", "16Mi"))},
		{"what the runtime needs", corev1.PodSpec{
			Overhead: amounts("500m", "1Mi"), Resources: new(requirements(amounts("1", "1Mi"), amounts("2", "4Mi"))), Containers: []corev1.Container{{}},
		}, spec.Host{}, requirements(amounts("1500m", ""), amounts("2500m", "5Mi"))},
		{
			"no quotas",
			corev1.PodSpec{Containers: []corev1.Container{one}},
			spec.Host{Enforce: spec.Enforcement{NoCPUQuota: true}},
			requirements(amounts("1", ""), amounts("", "2Mi")),
		},
	} {
		pod := &corev1.Pod{Spec: tt.spec}
		if diff := cmp.Diff(&tt.want, InEffect(pod, tt.host)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
