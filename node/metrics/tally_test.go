package metrics

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/health"
)

// counts returns the counters of a tally with these names.
func counts(t *testing.T, fill func(*Tally), names ...string) string {
	t.Helper()
	src := Sources{
		Tally: NewTally(), Checks: health.New(), Probes: func() []ProbeTotals { return nil },
		Pods: func() []*corev1.Pod { return nil }, Inputs: func() map[[2]string]int { return nil },
	}
	fill(src.Tally)
	return lines(t, src, PathMain, names...)
}

func TestCountsOfAnAction(t *testing.T) {
	names := []string{
		"kubelet_started_pods_total", "kubelet_started_pods_errors_total", "kubelet_started_containers_total", "kubelet_started_containers_errors_total",
		"kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total", "monopod_action_errors_total", "kubelet_evictions", "monopod_action_duration_seconds_sum",
	}
	for name, tt := range map[string]struct {
		action Action
		want   []string
	}{
		"one that a kubelet has no name for": {Action{Kind: "Rest", Took: 2 * time.Second}, []string{
			"kubelet_started_pods_errors_total 0", "kubelet_started_pods_total 0", `monopod_action_duration_seconds_sum{action="Rest"} 2`,
		}},
		"a container is started": {Action{Kind: "StartContainer", Operation: "start_container", ContainerType: "container"}, []string{
			`kubelet_runtime_operations_total{operation_type="start_container"} 1`, `kubelet_started_containers_total{container_type="container"} 1`,
			"kubelet_started_pods_errors_total 0", "kubelet_started_pods_total 0", `monopod_action_duration_seconds_sum{action="StartContainer"} 0`,
		}},
		"a container cannot be started": {Action{Kind: "StartContainer", Operation: "start_container", ContainerType: "container", Reason: "RunContainerError"}, []string{
			`kubelet_runtime_operations_errors_total{operation_type="start_container"} 1`, `kubelet_runtime_operations_total{operation_type="start_container"} 1`,
			`kubelet_started_containers_errors_total{code="RunContainerError",container_type="container"} 1`, "kubelet_started_pods_errors_total 0", "kubelet_started_pods_total 0",
			`monopod_action_duration_seconds_sum{action="StartContainer"} 0`, `monopod_action_errors_total{action="StartContainer",reason="RunContainerError"} 1`,
		}},
		"a pod cannot be created": {Action{Kind: "CreateSandbox", StartsPod: true, Reason: "x"}, []string{
			"kubelet_started_pods_errors_total 1", "kubelet_started_pods_total 0", `monopod_action_duration_seconds_sum{action="CreateSandbox"} 0`, `monopod_action_errors_total{action="CreateSandbox",reason="x"} 1`,
		}},
		"an eviction that failed is none": {Action{Kind: "FailPod", EvictionSignal: "memory.available", Reason: "x"}, []string{
			"kubelet_started_pods_errors_total 0", "kubelet_started_pods_total 0", `monopod_action_duration_seconds_sum{action="FailPod"} 0`, `monopod_action_errors_total{action="FailPod",reason="x"} 1`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, counts(t, func(tally *Tally) { tally.Action(tt.action) }, names...), tt.want...)
		})
	}
}

func TestRequestsAreCountedWhenTheyEnd(t *testing.T) {
	const labels = `{long_running="false",method="GET",path="pods",server_type="readonly"}`
	names := []string{"kubelet_http_inflight_requests", "kubelet_http_requests_total", "kubelet_http_requests_duration_seconds_sum"}
	request := Request{Server: "readonly", Method: "GET", Path: "pods"}
	begun := func(tally *Tally) (end func(time.Duration)) {
		tally.Begin(request)
		return tally.Begin(request)
	}
	want(t, counts(t, func(tally *Tally) { begun(tally) }, names...), "kubelet_http_inflight_requests"+labels+" 2")
	want(t, counts(t, func(tally *Tally) { begun(tally)(3 * time.Second) }, names...),
		"kubelet_http_inflight_requests"+labels+" 1", "kubelet_http_requests_duration_seconds_sum"+labels+" 3", "kubelet_http_requests_total"+labels+" 1")
}

func TestSizesOfImagesAreAKubelets(t *testing.T) {
	const mb, gb = 1 << 20, 1 << 30
	for size, want := range map[int64]string{
		0: "N/A", -1: "N/A", 1: "0-10MB", 10 * mb: "0-10MB", 10*mb + 1: "10MB-100MB", 500 * mb: "100MB-500MB", 900 * mb: "500MB-1GB", 5 * gb: "1GB-5GB",
		10 * gb: "5GB-10GB", 11 * gb: "10GB-20GB", 30 * gb: "20GB-30GB", 31 * gb: "30GB-40GB", 60 * gb: "40GB-60GB", 100 * gb: "60GB-100GB", 100*gb + 1: "GT100GB",
	} {
		if got := sizeClass(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}

func TestStartedPodsAreCountedForTheDaemonToo(t *testing.T) {
	tally := NewTally()
	for range 2 {
		tally.PodStarted(time.Second)
	}
	if n := tally.PodsStarted(); n != 2 {
		t.Error(n)
	}
}
