package metrics

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/node/health"
	"monopod/node/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has one pod, in files.
type machine struct {
	err error
}

func (m *machine) Places(context.Context) ([]model.Place, error) {
	return []model.Place{{
		Key: manifests.Key{Namespace: "default", Name: "web"}, UID: "uid", Cgroup: "/pods/pod1", Created: time.Unix(100, 0),
		Containers: []model.ContainerPlace{
			{Name: "c", ID: "old", Image: "busybox", Cgroup: "/pods/pod1/old", Started: time.Unix(100, 0)},
			{Name: "c", ID: "new", Image: "busybox", Cgroup: "/pods/pod1/new", Started: time.Unix(200, 0)},
		},
	}}, m.err
}

func (m *machine) MeasureDisk(context.Context, model.Place) (stats.PodDisk, error) {
	return stats.PodDisk{}, errors.New("nobody asks for disks")
}

func sources(t *testing.T) (Sources, *machine) {
	t.Helper()
	root, m := t.TempDir(), &machine{}
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n")
	write("proc/self/net/dev", "  eth0: 10 1 2 3 0 0 0 0 20 4 5 6 0 0 0 0\n")
	write("proc/42/net/dev", "  eth0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n \xff\xfe: 6 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n") // a pod may call them as it likes
	write("cg/cpu.stat", "usage_usec 5000000\n")
	for _, cgroup := range []string{"pods", "pods/pod1", "pods/pod1/old", "pods/pod1/new"} {
		for name, text := range map[string]string{
			"cpu.stat": "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 10\nnr_throttled 3\nthrottled_usec 2000000\n", "memory.current": "1000\n", "memory.max": "4000\n",
			"memory.stat": "anon 600\nfile 300\ninactive_file 200\npgfault 77\npgmajfault 7\n", "memory.events": "max 4\noom_kill 1\n", "memory.swap.current": "40\n", "memory.swap.max": "max\n",
			"pids.current": "5\n", "pids.max": "100\n", "io.stat": "99:9 rbytes=4096 wbytes=8192 rios=1 wios=2\n", "cgroup.procs": "42\n",
			"cpu.pressure":    "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n",
			"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		} {
			write(filepath.Join("cg", cgroup, name), text)
		}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pods := []*corev1.Pod{
		{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: running}, {}}}},
		{Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}}},
		{},
	}
	return Sources{
		Node: "edge", Version: "v1", Tally: NewTally(),
		Checks: health.New(health.Check{Name: "bad", Ask: func(context.Context) error { return errors.New("bad") }}),
		Stats: stats.New(stats.Config{
			Hierarchies: stats.Hierarchies{Unified: filepath.Join(root, "cg")}, Proc: filepath.Join(root, "proc"), PodsCgroup: "/pods", Source: m,
			Now: func() time.Time { return time.Unix(1000, 0) },
		}),
		Pods: func() []*corev1.Pod { return pods },
		Conditions: func() []corev1.NodeCondition {
			return []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse}}
		},
		Inputs: func() map[[2]string]int { return map[[2]string]int{{"file", "Accepted"}: 2} },
		Probes: func() []ProbeTotals {
			return []ProbeTotals{{Namespace: "default", Pod: "web", UID: "uid", Container: "c", Kind: "Liveness", Successful: 3, Failed: 1, Took: 2 * time.Second, Bounds: []float64{0.5, 1}, Buckets: []uint64{1, 1}}}
		},
	}, m
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func (s Sources) fill() {
	s.Tally.Action(Action{Kind: "CreateSandbox", Operation: "run_podsandbox", StartsPod: true, Took: 30 * time.Millisecond})
	s.Tally.Action(Action{Kind: "CreateSandbox", Operation: "run_podsandbox", StartsPod: true, Took: time.Hour, Reason: "CreatePodSandboxError"})
	s.Tally.Action(Action{Kind: "StartContainer", Operation: "start_container", ContainerType: "container"})
	s.Tally.Action(Action{Kind: "StartContainer", Operation: "start_container", ContainerType: "init_container", Reason: "RunContainerError"})
	s.Tally.Action(Action{Kind: "FailPod", EvictionSignal: "memory.available"})
	s.Tally.Evicted("nodefs.available")
	s.Tally.Pulled(0, time.Minute)
	s.Tally.Pulled(11<<20, 7*time.Second)
	s.Tally.Event("Normal", "Pulled")
	s.Tally.PodStarted(3500 * time.Millisecond)
	s.Tally.Begin(Request{Server: "socket", Method: "GET", Path: "metrics"})(20 * time.Millisecond)
	s.Tally.Begin(Request{Server: "readwrite", Method: "GET", Path: "exec", LongRunning: true})
}

func TestEachPathTellsWhatIsSo(t *testing.T) {
	src, m := sources(t)
	src.fill()
	handlers := Handlers(src, slog.New(slog.DiscardHandler))
	for path, lines := range map[string][]string{
		PathMain: {
			`monopod_build_info{go_version="go`, `kubelet_node_name{node="edge"} 1`, `monopod_check_ok{check="bad"} 0`, `monopod_check_ok{check="ping"} 1`,
			`kubelet_running_pods 1`, `kubelet_running_containers{container_state="running"} 1`, `kubelet_running_containers{container_state="waiting"} 1`,
			`kubelet_running_containers{container_state="exited"} 1`, `kubelet_desired_pods{static="true"} 3`, `kubelet_active_pods{static="true"} 2`,
			`monopod_pods{phase="Running"} 1`, `monopod_pods{phase="Unknown"} 1`, `monopod_inputs{source="file",state="Accepted"} 2`,
			`monopod_node_condition{condition="DiskPressure"} 1`, `monopod_node_condition{condition="PIDPressure"} 0`,
			`kubelet_started_pods_total 1`, `kubelet_started_pods_errors_total 1`, `kubelet_started_containers_total{container_type="container"} 1`,
			`kubelet_started_containers_errors_total{code="RunContainerError",container_type="init_container"} 1`,
			`kubelet_pod_start_duration_seconds_bucket{le="3"} 0`, `kubelet_pod_start_duration_seconds_bucket{le="4"} 1`, `kubelet_pod_start_duration_seconds_sum 3.5`,
			`kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2`, `kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1`,
			`kubelet_runtime_operations_duration_seconds_bucket{operation_type="run_podsandbox",le="0.03125"} 1`, `kubelet_runtime_operations_duration_seconds_bucket{operation_type="run_podsandbox",le="+Inf"} 2`,
			`monopod_action_duration_seconds_count{action="FailPod"} 1`, `monopod_action_errors_total{action="CreateSandbox",reason="CreatePodSandboxError"} 1`,
			`kubelet_evictions{eviction_signal="memory.available"} 1`, `kubelet_evictions{eviction_signal="nodefs.available"} 1`,
			`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="N/A"} 1`, `kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="10MB-100MB",le="5"} 0`,
			`kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="10MB-100MB",le="10"} 1`,
			`monopod_events_total{reason="Pulled",type="Normal"} 1`,
			`kubelet_http_requests_total{long_running="false",method="GET",path="metrics",server_type="socket"} 1`,
			`kubelet_http_inflight_requests{long_running="true",method="GET",path="exec",server_type="readwrite"} 1`, `process_resident_memory_bytes`, `go_goroutines`,
		},
		PathCadvisor: {
			`container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 5 1000000`,
			`container_cpu_usage_seconds_total{container="c",cpu="total",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web"} 1.5 1000000`,
			`container_cpu_cfs_throttled_seconds_total{container="c",id="/pods/pod1/old",image="busybox",name="old",namespace="default",pod="web"} 2 `,
			`container_memory_working_set_bytes{container="",id="/pods/pod1",image="",name="",namespace="default",pod="web"} 800 `,
			`container_memory_failures_total{container="c",failure_type="pgmajfault",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web",scope="hierarchy"} 7 `,
			`container_fs_writes_bytes_total{container="c",device="99:9",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web"} 8192 `,
			`container_network_transmit_bytes_total{container="",id="/pods/pod1",image="",interface="eth0",name="",namespace="default",pod="web"} 8 `,
			`container_network_receive_bytes_total{container="",id="/pods/pod1",image="",interface="\\xff\\xfe",name="",namespace="default",pod="web"} 6 `,
			`container_pressure_cpu_waiting_seconds_total{container="c",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web"} 3 `,
			`container_pressure_cpu_stalled_seconds_total{container="c",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web"} 1 `,
			`container_spec_memory_limit_bytes{container="c",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web"} 4000 `,
			`container_start_time_seconds{container="c",id="/pods/pod1/new",image="busybox",name="new",namespace="default",pod="web"} 200 `,
			`machine_memory_bytes 1.024e+06`, `container_scrape_error 0`,
		},
		PathResource: {
			`node_cpu_usage_seconds_total 5 1000000`, `node_memory_working_set_bytes 614400 1000000`, `node_swap_usage_bytes 10240 1000000`,
			`pod_cpu_usage_seconds_total{namespace="default",pod="web"} 1.5 1000000`, `pod_swap_usage_bytes{namespace="default",pod="web"} 40 1000000`,
			`container_memory_working_set_bytes{container="c",namespace="default",pod="web"} 800 1000000`, `container_start_time_seconds{container="c",namespace="default",pod="web"} 200 1000000`,
			`resource_scrape_error 0`,
		},
		PathProbes: {
			`prober_probe_total{container="c",namespace="default",pod="web",pod_uid="uid",probe_type="Liveness",result="successful"} 3`,
			`prober_probe_total{container="c",namespace="default",pod="web",pod_uid="uid",probe_type="Liveness",result="failed"} 1`,
		},
	} {
		text := scrape(t, handlers[path])
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line) {
				t.Errorf("%s has no %s", path, line)
			}
		}
		if t.Failed() {
			t.Logf("%s:\n%s", path, text)
		}
	}
	m.err = errors.New("no runtime")
	if text := scrape(t, handlers[PathResource]); !strings.Contains(text, "\nresource_scrape_error 1\n") {
		t.Errorf("resource: %s", text)
	}
	if text := scrape(t, handlers[PathCadvisor]); !strings.Contains(text, "\ncontainer_scrape_error 1\n") {
		t.Errorf("cadvisor: %s", text)
	}
}

// TestWhatIsToldIsAsPrometheusWantsIt, but for the names that kubelet and cAdvisor have made up.
func TestWhatIsToldIsAsPrometheusWantsIt(t *testing.T) {
	src, _ := sources(t)
	src.fill()
	for path, h := range Handlers(src, slog.New(slog.DiscardHandler)) {
		problems, err := promlint.New(strings.NewReader(scrape(t, h))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			foreign := strings.HasPrefix(p.Metric, "container_") || p.Metric == "kubelet_evictions" || strings.HasPrefix(p.Metric, "go_")
			if !foreign {
				t.Errorf("%s: %s: %s", path, p.Metric, p.Text)
			}
		}
	}
}

func TestTheDocsHaveEachMetric(t *testing.T) {
	want := docsHead + Table()
	testfiles.Compare(t, "../../docs/metrics.md", want)
	src, _ := sources(t)
	src.fill()
	for path, h := range Handlers(src, slog.New(slog.DiscardHandler)) {
		told := map[string]bool{}
		for line := range strings.Lines(scrape(t, h)) {
			if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
				told[strings.Fields(name)[0]] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(told)) {
			if !strings.Contains(want, "| `"+name+"` |") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				t.Errorf("%s: %s is not in the docs", path, name)
			}
		}
	}
}

const docsHead = "# Metrics\n\n<!-- Made by `go test ./node/metrics -update`; a test compares. -->\n\n" +
	"Metrics for Prometheus, on the socket and over TCP ([endpoints](endpoints.md)). Names are those of a kubelet and of cAdvisor where the\n" +
	"meaning is the same. `/metrics` also has the usual `process_*` and `go_*` metrics. Nothing is measured between requests.\n" +
	"*container* stands for the labels container, id, image, name, namespace and pod.\n"

func TestLabelsNeedNotBeUTF8(t *testing.T) {
	s, _ := sources(t)
	s.Tally.Event("Normal", "\xff")
	s.Tally.Begin(Request{Server: "socket", Method: "GET", Path: "\xfe"})(time.Second)
	if text := scrape(t, Handlers(s, slog.New(slog.DiscardHandler))[PathMain]); !strings.Contains(text, `reason="\\xff"`) || !strings.Contains(text, `path="\\xfe"`) {
		t.Errorf("%s", text)
	}
}
