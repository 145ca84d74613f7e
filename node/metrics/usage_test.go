package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/stats"
)

// fixed is a machine that uses the same at any time.
type fixed struct {
	machine stats.Machine
	pods    []stats.Pod
	// asked receives a value for each request, which then waits for release. Nil: requests do not wait.
	asked, release chan struct{}
}

func (f *fixed) All(context.Context, stats.Options) (stats.Machine, []stats.Pod, error) {
	if f.asked != nil {
		f.asked <- struct{}{}
		<-f.release
	}
	return f.machine, f.pods, nil
}

// lines returns the values that a path serves, of the metrics with these names.
func lines(t *testing.T, src Sources, path string, names ...string) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(scrape(t, Handlers(src, slog.New(slog.DiscardHandler))[path])) {
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		if slices.Contains(names, name) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return strings.Join(all, "\n")
}

// want compares lines.
func want(t *testing.T, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("got\n%s\nwant\n%s", got, w)
	}
}

func pod(name string, containers ...stats.Container) stats.Pod {
	p := stats.Pod{Containers: containers}
	p.Key, p.Time = manifests.Key{Namespace: "default", Name: name}, time.Unix(5, 0)
	return p
}

func instance(name, id string, started int64, cpu time.Duration) stats.Container {
	c := stats.Container{ContainerPlace: model.ContainerPlace{Name: name, ID: id, Started: time.Unix(started, 0)}}
	c.CPU.Usage, c.Time = cpu, time.Unix(6, 500e6)
	return c
}

// While one instance of a container replaces another, both are there: two values with the same labels would make the whole answer invalid.
func TestTheLatestInstanceOfAContainerCounts(t *testing.T) {
	src := Sources{Stats: &fixed{pods: []stats.Pod{
		pod("a", instance("c", "1", 100, 7*time.Second), instance("side", "2", 50, time.Second), instance("c", "3", 200, 2*time.Second)),
		pod("b", instance("c", "4", 200, 3*time.Second), instance("c", "5", 100, 9*time.Second)),
	}}}
	want(t, lines(t, src, PathResource, "container_cpu_usage_seconds_total"),
		`container_cpu_usage_seconds_total{container="c",namespace="default",pod="a"} 2 6500`,
		`container_cpu_usage_seconds_total{container="c",namespace="default",pod="b"} 3 6500`,
		`container_cpu_usage_seconds_total{container="side",namespace="default",pod="a"} 1 6500`)
	want(t, lines(t, src, PathResource, "container_start_time_seconds"),
		`container_start_time_seconds{container="c",namespace="default",pod="a"} 200 6500`,
		`container_start_time_seconds{container="c",namespace="default",pod="b"} 200 6500`,
		`container_start_time_seconds{container="side",namespace="default",pod="a"} 50 6500`)
}

// A metric is missing where the kernel does not count: 0 would be a value.
func TestWhatIsNotCountedIsMissing(t *testing.T) {
	src := Sources{Stats: &fixed{pods: []stats.Pod{pod("a", instance("c", "1", 1, 0))}}}
	want(t, lines(t, src, PathResource, "node_swap_usage_bytes", "pod_swap_usage_bytes", "container_swap_usage_bytes"))
	missing := []string{
		"machine_swap_bytes", "container_memory_swap", "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total", "container_fs_reads_total",
		"container_network_receive_bytes_total", "container_pressure_cpu_waiting_seconds_total", "container_pressure_io_stalled_seconds_total",
	}
	want(t, lines(t, src, PathCadvisor, missing...))
	m := stats.Machine{}
	m.Swap, m.IO.PSI = &stats.Swap{Limit: 9, Usage: 3}, &stats.PSI{Full: stats.Stall{Total: time.Second}}
	m.CPU.Periods, m.IO.Devices, m.Network = 4, []stats.DeviceIO{{Major: 999, Minor: 1, Reads: 5}}, []stats.Interface{{Name: "eth0", RxBytes: 6}}
	src.Stats = &fixed{machine: m}
	const row = `id="/",image="",name="",namespace="",pod=""`
	got := strings.ReplaceAll(lines(t, src, PathCadvisor, missing...), " -62135596800000", "") // measured at no time
	for _, line := range []string{
		"machine_swap_bytes 9", `container_memory_swap{container="",id="/",image="",name="",namespace="",pod=""} 3`, `container_cpu_cfs_periods_total{container="",` + row + `} 4`,
		`container_fs_reads_total{container="",device="999:1",` + row + `} 5`, `container_pressure_io_stalled_seconds_total{container="",` + row + `} 1`,
		`container_network_receive_bytes_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 6`,
	} {
		if !slices.Contains(strings.Split(got, "\n"), line) {
			t.Errorf("%s is missing in\n%s", line, got)
		}
	}
}

// Each answer is held in memory: a client that asks without end must not fill it.
func TestRequestsAtOnceAreLimited(t *testing.T) {
	f := &fixed{asked: make(chan struct{}), release: make(chan struct{})}
	h := Handlers(Sources{Stats: f}, slog.New(slog.DiscardHandler))[PathResource]
	codes := make(chan int)
	get := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		codes <- w.Code
	}
	for range maxScrapes {
		go get()
		<-f.asked
	}
	go get()
	select {
	case code := <-codes:
		if code != http.StatusServiceUnavailable {
			t.Errorf("one more: %d", code)
		}
	case <-f.asked:
		t.Fatal("one more is measured for")
	}
	close(f.release)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("code %d", code)
		}
	}
}

func TestPodsAndContainersByState(t *testing.T) {
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	src, _ := sources(t)
	src.Pods = func() []*corev1.Pod {
		return []*corev1.Pod{
			{Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{ended, running}, ContainerStatuses: []corev1.ContainerStatus{{}, {}}}},
			{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{running, running, ended}}},
			{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{ended}}},
		}
	}
	src.Conditions = nil
	want(t, lines(t, src, PathMain, "kubelet_running_pods", "kubelet_running_containers", "kubelet_desired_pods", "kubelet_active_pods", "monopod_pods", "monopod_node_condition"),
		`kubelet_active_pods{static="true"} 2`,
		`kubelet_desired_pods{static="true"} 3`,
		`kubelet_running_containers{container_state="exited"} 3`,
		`kubelet_running_containers{container_state="running"} 3`,
		`kubelet_running_containers{container_state="waiting"} 2`,
		`kubelet_running_pods 2`,
		`monopod_pods{phase="Failed"} 1`,
		`monopod_pods{phase="Pending"} 1`,
		`monopod_pods{phase="Running"} 1`,
		`monopod_pods{phase="Succeeded"} 0`,
		`monopod_pods{phase="Unknown"} 0`)
}
