package spec

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// text prints the values of a cgroup.
func (v CgroupValues) text() string {
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("shares %d quota %s/%d memory %s min %d low %d pids %s %v",
		v.Shares, number(v.Quota), v.Period, number(v.Memory), v.MemoryMin, v.MemoryLow, number(v.Pids), v.Hugepages)
}

func needs(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

func TestPodCgroup(t *testing.T) {
	sidecar := func(name string, r corev1.ResourceRequirements) corev1.Container {
		return corev1.Container{Name: name, Resources: r, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
	}
	tests := []struct {
		name string
		spec corev1.PodSpec
		host Host
		want string
	}{
		{"best effort", corev1.PodSpec{Containers: []corev1.Container{{}}}, Host{}, "shares 2 quota -/100000 memory - min 0 low 0 pids - map[]"},
		{"guaranteed: sums", corev1.PodSpec{Containers: []corev1.Container{
			{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}, {Resources: needs(amounts("500m", "2Mi"), amounts("500m", "2Mi"))},
		}}, Host{}, "shares 1536 quota 150000/100000 memory 3145728 min 0 low 0 pids - map[]"},
		{"burstable: one container without a limit leaves the pod without", corev1.PodSpec{Containers: []corev1.Container{
			{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}, {Resources: needs(amounts("500m", ""), amounts("", "2Mi"))},
		}}, Host{}, "shares 1536 quota -/100000 memory 3145728 min 0 low 0 pids - map[]"},
		{"an init container that needs more than the others", corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "i", Resources: needs(amounts("3", "9Mi"), amounts("3", "9Mi"))}},
			Containers:     []corev1.Container{{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}},
		}, Host{}, "shares 3072 quota 300000/100000 memory 9437184 min 0 low 0 pids - map[]"},
		{"sidecars run beside both", corev1.PodSpec{
			InitContainers: []corev1.Container{
				sidecar("s", needs(amounts("1", "1Mi"), amounts("1", "1Mi"))),
				{Name: "i", Resources: needs(amounts("3", "1Mi"), amounts("3", "1Mi"))},
			},
			Containers: []corev1.Container{{Resources: needs(amounts("1", "9Mi"), amounts("1", "9Mi"))}},
		}, Host{}, "shares 4096 quota 400000/100000 memory 10485760 min 0 low 0 pids - map[]"},
		{"the pod's own come first", corev1.PodSpec{
			Resources:  new(needs(amounts("2", "8Mi"), amounts("4", "16Mi"))),
			Containers: []corev1.Container{{Resources: needs(amounts("1", ""), nil)}, {}},
		}, Host{}, "shares 2048 quota 400000/100000 memory 16777216 min 0 low 0 pids - map[]"},
		{"what the runtime needs comes on top", corev1.PodSpec{
			Overhead:   amounts("500m", "1Mi"),
			Containers: []corev1.Container{{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}},
		}, Host{}, "shares 1536 quota 150000/100000 memory 2097152 min 0 low 0 pids - map[]"},
		{
			"no quotas",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}}},
			Host{Enforce: Enforcement{NoCPUQuota: true, PodPidsLimit: 9}},
			"shares 1024 quota -/100000 memory 1048576 min 0 low 0 pids 9 map[]",
		},
		{
			"another period",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}}},
			Host{Enforce: Enforcement{CPUPeriod: 5000}},
			"shares 1024 quota 5000/5000 memory 1048576 min 0 low 0 pids - map[]",
		},
		{
			"memory reserved, guaranteed",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: needs(amounts("1", "1Mi"), amounts("1", "1Mi"))}}},
			Host{Enforce: Enforcement{ReserveMemory: true}},
			"shares 1024 quota 100000/100000 memory 1048576 min 1048576 low 0 pids - map[]",
		},
		{
			"memory reserved, burstable",
			corev1.PodSpec{Containers: []corev1.Container{{Resources: needs(amounts("", "1Mi"), nil)}}},
			Host{Enforce: Enforcement{ReserveMemory: true}},
			"shares 2 quota -/100000 memory - min 0 low 1048576 pids - map[]",
		},
		{"huge pages: what is not asked for is forbidden", corev1.PodSpec{Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"), "memory": resource.MustParse("1Mi")}}},
		}}, Host{HugePageSizes: []int64{1 << 30, 2 << 20, 64 << 10}}, "shares 2 quota -/100000 memory 1048576 min 0 low 0 pids - map[1GB:0 2MB:4194304 64KB:0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := PodCgroup(&corev1.Pod{Spec: tt.spec}, tt.host).text(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWiden(t *testing.T) {
	a := CgroupValues{Shares: 100, Quota: ptr.To[int64](10), Memory: ptr.To[int64](5), Period: 1, Hugepages: map[string]int64{"2MB": 1, "1GB": 3}}
	b := CgroupValues{Shares: 50, Quota: ptr.To[int64](20), Pids: ptr.To[int64](7), Hugepages: map[string]int64{"2MB": 2}}
	if got, want := a.Widen(b).text(), "shares 100 quota 20/1 memory - min 0 low 0 pids - map[1GB:3 2MB:2]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestClassCgroup(t *testing.T) {
	pods := []*corev1.Pod{
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: needs(amounts("1", "1Mi"), nil)}}}},
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: needs(amounts("250m", "2Mi"), nil)}}}},
	}
	h := Host{Enforce: Enforcement{ReserveMemory: true}}
	if got, want := ClassCgroup(corev1.PodQOSBurstable, pods, h).text(), "shares 1280 quota -/100000 memory - min 0 low 3145728 pids - map[]"; got != want {
		t.Errorf("burstable: got  %s\nwant %s", got, want)
	}
	pods[0].Spec.Overhead = amounts("750m", "1Mi")
	if got, want := ClassCgroup(corev1.PodQOSBurstable, pods, h).text(), "shares 2048 quota -/100000 memory - min 0 low 4194304 pids - map[]"; got != want {
		t.Errorf("burstable with overhead: got  %s\nwant %s", got, want)
	}
	if got, want := ClassCgroup(corev1.PodQOSBestEffort, nil, h).text(), "shares 2 quota -/100000 memory - min 0 low 0 pids - map[]"; got != want {
		t.Errorf("best effort: got  %s\nwant %s", got, want)
	}
}

func TestMemoryQuality(t *testing.T) {
	tests := []struct {
		name             string
		requests, limits corev1.ResourceList
		class            string
		enforce          Enforcement
		want             map[string]string
	}{
		{"as delivered", amounts("", "100Mi"), amounts("", "200Mi"), "", Enforcement{}, map[string]string{"memory.swap.max": "0"}},
		{"one process alone", nil, nil, "", Enforcement{SingleProcessOOMKill: true}, map[string]string{"memory.oom.group": "0"}},
		{"throttled between request and limit", amounts("", "100Mi"), amounts("", "200Mi"), "", Enforcement{MemoryThrottling: 0.9}, map[string]string{"memory.high": "199229440"}},
		{"throttled by the machine's memory", amounts("", "1Gi"), nil, "", Enforcement{MemoryThrottling: 0.5}, map[string]string{"memory.high": "4831838208"}},
		{"guaranteed pods are not throttled", amounts("1", "100Mi"), amounts("1", "100Mi"), "", Enforcement{MemoryThrottling: 0.9, ReserveMemory: true}, map[string]string{"memory.high": "", "memory.min": "104857600", "memory.low": ""}},
		{"burstable pods are protected softly", amounts("", "100Mi"), amounts("", "200Mi"), "", Enforcement{ReserveMemory: true}, map[string]string{"memory.low": "104857600", "memory.min": ""}},
		{"a share of the swap", amounts("", "1Gi"), amounts("", "2Gi"), "", Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "536870912"}},
		{"no swap for what fits into its request", amounts("", "1Gi"), amounts("", "1Gi"), "", Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "0"}},
		{"no swap for what the machine needs", amounts("", "1Gi"), amounts("", "2Gi"), "system-cluster-critical", Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "0"}},
		{"no swap for best effort", nil, nil, "", Enforcement{LimitedSwap: true}, map[string]string{"memory.swap.max": "0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := onePod(func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.PriorityClassName, c.Resources = tt.class, needs(tt.requests, tt.limits)
			})
			in := testInput(pod, "app")
			in.Host.CgroupV2, in.Host.SwapAccounting, in.Host.SwapBytes, in.Host.Enforce = true, true, 4<<30, tt.enforce
			got := resources(in, &pod.Spec.Containers[0]).Unified
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

func TestResourcesOfThePodStandInForThoseOfAContainer(t *testing.T) {
	pod := onePod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Resources = new(needs(amounts("1", "2Gi"), amounts("2", "4Gi")))
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Resources: needs(amounts("", "512Mi"), nil)})
	})
	in := testInput(pod, "app")
	r, err := Resources(in)
	if err != nil || *r.Memory.Limit != 4<<30 || *r.CPU.Quota != 200_000 {
		t.Errorf("%+v, %v", r, err)
	}
	// of 8 GiB: what the pod requests beyond its containers, 1536 MiB, is shared by both
	for i, want := range []int{907, 844} {
		if got := oomScoreAdj(Input{Pod: pod, Host: Host{MemoryBytes: 8 << 30, MinOOMScoreAdj: -1000}}, &pod.Spec.Containers[i]); got != want {
			t.Errorf("oom_score_adj of %d is %d, want %d", i, got, want)
		}
	}
}

func TestASidecarIsKilledAfterTheContainersItServes(t *testing.T) {
	pod := onePod(func(p *corev1.Pod, c *corev1.Container) {
		c.Resources = needs(amounts("", "4Gi"), nil)
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: needs(amounts("1", ""), nil)}, {Name: "i"}}
	})
	in := testInput(pod, "app")
	in.Host.MinOOMScoreAdj = -1000
	if side, once := oomScoreAdj(in, &pod.Spec.InitContainers[0]), oomScoreAdj(in, &pod.Spec.InitContainers[1]); side != 500 || once != 999 {
		t.Errorf("sidecar %d, init container %d", side, once)
	}
}

func TestWhatAnUpdateSets(t *testing.T) {
	pod := onePod(func(_ *corev1.Pod, c *corev1.Container) { c.Resources = needs(amounts("1", ""), nil) })
	in := testInput(pod, "app")
	in.Host.SwapAccounting = true
	r, err := Resources(in)
	if err != nil || *r.Memory.Limit != -1 || *r.Memory.Swap != -1 || *r.CPU.Quota != -1 || *r.CPU.Shares != 1024 {
		t.Errorf("limits that are gone are not taken away: %+v, %v", r, err)
	}
}

func TestHugePagesThatTheMachineDoesNotHaveAreRefused(t *testing.T) {
	limits := corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"), "memory": resource.MustParse("1Mi")}
	for of, pod := range map[string]*corev1.Pod{
		"container": onePod(func(_ *corev1.Pod, c *corev1.Container) { c.Resources.Limits = limits }),
		"pod": onePod(func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: limits}
		}),
	} {
		in := testInput(pod, "app")
		if _, err := Build(in); err == nil {
			t.Errorf("%s: accepted without a hugetlb controller", of)
		}
		in.Host.HugePageSizes = []int64{2 << 20}
		s, err := Build(in)
		if err != nil || len(s.Linux.Resources.HugepageLimits) != 1 || s.Linux.Resources.HugepageLimits[0].Limit != 4<<20 {
			t.Errorf("%s: %+v, %v", of, s, err)
		}
	}
}
