package limits

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestCPU(t *testing.T) {
	tests := []struct {
		name           string
		request, limit string
		shares         uint64
		quota          *int64
	}{
		{"nothing asked", "", "", 2, nil},
		{"a request of zero", "0", "", 2, nil},
		{"a tiny request has the least weight", "1m", "", 2, nil},
		{"a request is rounded down", "100m", "", 102, nil},
		{"a whole cpu", "1", "", 1024, nil},
		{"the most weight", "400", "", 262144, nil},
		{"an absurd request does not overflow", "9e15", "9e15", 262144, ptr.To[int64](1 << 40 * 100)},
		{"a limit without a request is the request", "", "500m", 512, ptr.To[int64](50000)},
		{"a request of zero below a limit stays zero", "0", "500m", 2, ptr.To[int64](50000)},
		{"both", "100m", "2", 102, ptr.To[int64](200000)},
		{"the least quota is a millisecond", "1m", "5m", 2, ptr.To[int64](1000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &corev1.Container{Resources: corev1.ResourceRequirements{Requests: spectest.Amounts(tt.request, ""), Limits: spectest.Amounts(tt.limit, "")}}
			got := cpu(spec.Input{}, c)
			if *got.Shares != tt.shares || !ptr.Equal(got.Quota, tt.quota) || *got.Period != 100000 {
				t.Errorf("shares %d quota %d period %d", *got.Shares, ptr.Deref(got.Quota, 0), *got.Period)
			}
		})
	}
}

func TestMemoryAndSwap(t *testing.T) {
	tests := []struct {
		name        string
		host        spec.Host
		limit       string
		want, swap  *int64
		unifiedSwap string
	}{
		{name: "v1 without a limit", host: spec.Host{SwapAccounting: true}},
		{name: "v1 with a limit forbids swap", host: spec.Host{SwapAccounting: true}, limit: "1Mi", want: ptr.To[int64](1 << 20), swap: ptr.To[int64](1 << 20)},
		{name: "v1 without swap accounting", limit: "1Mi", want: ptr.To[int64](1 << 20)},
		{name: "v2 forbids swap without a limit too", host: spec.Host{CgroupV2: true, SwapAccounting: true}, unifiedSwap: "0"},
		{name: "v2 with a limit", host: spec.Host{CgroupV2: true, SwapAccounting: true}, limit: "1Mi", want: ptr.To[int64](1 << 20), unifiedSwap: "0"},
		{name: "v2 without swap accounting", host: spec.Host{CgroupV2: true}, limit: "1Mi", want: ptr.To[int64](1 << 20)},
		{name: "a limit of zero is none", host: spec.Host{SwapAccounting: true}, limit: "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &corev1.Container{Resources: corev1.ResourceRequirements{Limits: spectest.Amounts("", tt.limit)}}
			got := ForContainer(spec.Input{Pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{*c}}}, Host: tt.host}, c)
			if !ptr.Equal(got.Memory.Limit, tt.want) || !ptr.Equal(got.Memory.Swap, tt.swap) {
				t.Errorf("limit %d swap %d", ptr.Deref(got.Memory.Limit, -1), ptr.Deref(got.Memory.Swap, -1))
			}
			if got.Unified["memory.swap.max"] != tt.unifiedSwap {
				t.Errorf("unified %v", got.Unified)
			}
			if (got.Unified["memory.oom.group"] == "1") != tt.host.CgroupV2 {
				t.Errorf("unified %v", got.Unified)
			}
		})
	}
}

func TestOOMScoreAdj(t *testing.T) {
	tests := []struct {
		name             string
		requests, limits corev1.ResourceList
		class            string
		least            int
		want             int
	}{
		{name: "best effort goes first", least: -1000, want: 1000},
		{name: "guaranteed goes last", limits: spectest.Amounts("1", "1Gi"), requests: spectest.Amounts("1", "1Gi"), least: -1000, want: -997},
		{name: "guaranteed with what this process may give", limits: spectest.Amounts("1", "1Gi"), requests: spectest.Amounts("1", "1Gi"), want: 0},
		{name: "node critical goes last whatever it asks", class: "system-node-critical", least: -1000, want: -997},
		{name: "other classes mean nothing", class: "system-cluster-critical", least: -1000, want: 1000},
		{name: "burstable without memory is just before best effort", requests: spectest.Amounts("1", ""), want: 999},
		{name: "burstable by its share of the memory", requests: spectest.Amounts("", "2Gi"), want: 750},
		{name: "burstable shares are rounded down", requests: spectest.Amounts("", "100Mi"), want: 988},
		{name: "burstable with nearly all memory", requests: spectest.Amounts("", "8191Mi"), want: 3},
		{name: "burstable with more than all memory", requests: spectest.Amounts("", "8Ei"), want: 3},
		{name: "burstable never below what this process may give", requests: spectest.Amounts("", "4Gi"), least: 600, want: 600},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.PriorityClassName = tt.class
				c.Resources = corev1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}
			})
			in := spectest.Input(pod, "app")
			in.Host.MinOOMScoreAdj = tt.least
			if got := OOMScoreAdj(in, &pod.Spec.Containers[0]); got != tt.want {
				t.Errorf("oomScoreAdj = %d, want %d", got, tt.want)
			}
		})
	}
}
