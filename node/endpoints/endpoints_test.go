package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/health"
	"monopod/node/metrics"
	"monopod/node/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node has one pod on a machine that is made of files.
type node struct {
	root  string
	walks int
	err   error
}

func (n *node) Places(context.Context) ([]model.Place, error) {
	return []model.Place{{
		Key: manifests.Key{Namespace: "default", Name: "web"}, UID: "uid", Cgroup: "/pod1", Created: time.Unix(100, 0),
		Containers: []model.ContainerPlace{{Name: "c", ID: "id", Cgroup: "/pod1/c", Started: time.Unix(200, 0)}},
	}}, n.err
}

func (n *node) MeasureDisk(context.Context, model.Place) (stats.PodDisk, error) {
	n.walks++
	return stats.PodDisk{
		Volumes: map[string]stats.DiskUse{"data": {Bytes: 10, Inodes: 1}, "ram": {Bytes: 100, Inodes: 1}}, Memory: map[string]bool{"ram": true},
		Layers: map[string]stats.DiskUse{"c": {Bytes: 20, Inodes: 2}}, Logs: map[string]stats.DiskUse{"c": {Bytes: 30, Inodes: 3}},
	}, nil
}

func (n *node) pods(context.Context) ([]corev1.Pod, error) {
	return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}}, nil
}

func newNode(t *testing.T, edit func(*Config)) (*node, *Endpoints) {
	t.Helper()
	n := &node{root: t.TempDir()}
	for name, text := range map[string]string{
		"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 400 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n", "proc/stat": "btime 50\n", "proc/loadavg": "0 0 0 1/99 7\n", "proc/sys/kernel/pid_max": "4096",
		"proc/pressure/io": "some avg10=1.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"proc/42/net/dev":  "  net1:1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n",
		"cg/cpu.stat":      "usage_usec 5000000\n", "cg/pod1/cpu.stat": "usage_usec 2000000\n", "cg/pod1/c/cpu.stat": "usage_usec 1500000\n",
		"cg/pod1/c/memory.current": "1000", "cg/pod1/c/memory.max": "4000", "cg/pod1/c/memory.stat": "inactive_file 200\nanon 600\n", "cg/pod1/c/cgroup.procs": "42\n",
		"cg/pod1/pids.current": "5", "cg/pod1/memory.swap.current": "40", "cg/pod1/memory.swap.max": "100",
		"cg/pod1/cpu.pressure": "some avg10=2.50 avg60=0.00 avg300=0.00 total=3\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
	} {
		path := filepath.Join(n.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{
		Node: "edge", Tally: metrics.NewTally(), Checks: health.New(health.Check{Name: "bad", ReadyOnly: true, Ask: func(context.Context) error { return errors.New("secret path") }}),
		Stats: stats.New(stats.Config{
			Hierarchies: stats.Hierarchies{Unified: filepath.Join(n.root, "cg")}, Proc: filepath.Join(n.root, "proc"), PodsCgroup: "/none", Source: n,
			Wait: func(context.Context, time.Duration) {},
		}),
		Metrics: map[string]http.Handler{"/metrics": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })},
		Pods:    n.pods, Running: n.pods, Configuration: json.RawMessage(`{"maxPods":7}`), RootDirectory: n.root, ImageDirectory: n.root, Log: slog.New(slog.DiscardHandler),
		StreamPaths: []string{"/exec/", "/containerLogs/"},
		Streams: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "stream "+r.Method+" "+r.URL.Path)
		}),
	}
	edit(&cfg)
	return n, New(cfg)
}

func ask(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w.Code, w.Body.String()
}

func TestEachPathIsServedWhereItBelongs(t *testing.T) {
	_, e := newNode(t, func(c *Config) { c.Profiling = true })
	_, closed := newNode(t, func(c *Config) { c.NoDebugging = true; c.Profiling = true })
	socket := http.NewServeMux()
	for pattern, h := range e.Routes() {
		socket.Handle(pattern, h)
	}
	servers := []http.Handler{socket, e.Handler(), closed.Handler(), e.ReadOnly(), e.Healthz()}
	const podList = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":null},"status":{"phase":"Running"}}]}`
	const disabled = "Debug endpoints are disabled.\n"
	for _, row := range []struct {
		method, path string
		codes        [5]int
		body         string
	}{
		{"GET", "/healthz", [5]int{200, 200, 200, 200, 200}, "ok"},
		{"GET", "/livez/ping", [5]int{200, 200, 200, 200, 200}, "ok"},
		{"GET", "/readyz", [5]int{500, 500, 500, 500, 500}, ""},
		{"GET", "/pods", [5]int{200, 200, 200, 200, 404}, podList},
		{"GET", "/pods/", [5]int{200, 200, 200, 200, 404}, podList},
		{"POST", "/pods", [5]int{405, 405, 405, 405, 405}, ""},
		{"GET", "/metrics", [5]int{200, 200, 200, 200, 404}, "metrics"},
		{"GET", "/stats/summary", [5]int{200, 200, 200, 200, 404}, ""},
		{"POST", "/stats/summary", [5]int{200, 200, 200, 405, 405}, ""},
		{"DELETE", "/stats/summary", [5]int{405, 405, 405, 405, 405}, ""},
		{"GET", "/runningpods/", [5]int{200, 200, 405, 404, 404}, podList},
		{"GET", "/configz", [5]int{200, 200, 405, 404, 404}, `{"kubeletconfig":{"maxPods":7}}`},
		{"GET", "/debug/pprof/cmdline", [5]int{200, 200, 405, 404, 404}, ""},
		{"POST", "/exec/default/web/c", [5]int{404, 200, 405, 404, 404}, "stream POST /exec/default/web/c"},
		{"GET", "/containerLogs/default/web/c", [5]int{404, 200, 405, 404, 404}, "stream GET /containerLogs/default/web/c"},
		{"GET", "/logs/", [5]int{404, 404, 404, 404, 404}, ""},
	} {
		for i, h := range servers {
			code, body := ask(t, h, row.method, row.path)
			if row.method == http.MethodPost && i > 2 && code == 405 {
				continue // these only read
			}
			want := row.body
			if i == 2 && row.codes[i] == 405 && row.method != "DELETE" && row.path != "/pods" {
				want = disabled
			}
			if code != row.codes[i] || code == 200 && want != "" && body != want || want == disabled && body != want {
				t.Errorf("%s %s of server %d: %d %q, want %d %q", row.method, row.path, i, code, body, row.codes[i], want)
			}
		}
	}
	for i, told := range []bool{true, true, true, false, false} {
		if _, body := ask(t, servers[i], http.MethodGet, "/readyz"); strings.Contains(body, "secret path") != told {
			t.Errorf("server %d: %s", i, body)
		}
	}
	_, plain := newNode(t, func(c *Config) { c.Streams = nil })
	for _, path := range []string{"/debug/pprof/", "/exec/a/b/c"} {
		if code, _ := ask(t, plain.Handler(), http.MethodGet, path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestPodsThatCannotBeSeenAreAnError(t *testing.T) {
	n, e := newNode(t, func(c *Config) {
		c.Pods = func(context.Context) ([]corev1.Pod, error) { return nil, errors.New("not yet") }
		c.Running = func(context.Context) ([]corev1.Pod, error) { return nil, nil }
	})
	if code, body := ask(t, e.Handler(), http.MethodGet, "/pods"); code != 503 || body != "not yet\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask(t, e.Handler(), http.MethodGet, "/runningpods/"); code != 200 || !strings.Contains(body, `"items":[]`) {
		t.Errorf("%d %s", code, body)
	}
	n.err = errors.New("no runtime")
	if code, body := ask(t, e.Handler(), http.MethodGet, "/stats/summary"); code != 503 || !strings.Contains(body, "no runtime") {
		t.Errorf("%d %s", code, body)
	}
}

func TestTheSummaryHasWhatAKubeletTells(t *testing.T) {
	n, e := newNode(t, func(*Config) {})
	summary := func(path string) statsapi.Summary {
		t.Helper()
		code, body := ask(t, e.Handler(), http.MethodGet, path)
		var s statsapi.Summary
		dec := json.NewDecoder(strings.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil || code != 200 || len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
			t.Fatalf("%d %v %s", code, err, body)
		}
		return s
	}
	s := summary("/stats/summary")
	p, c := s.Pods[0], s.Pods[0].Containers[0]
	for what, pair := range map[string][2]uint64{
		"node cpu":         {*s.Node.CPU.UsageCoreNanoSeconds, 5e9},
		"node memory":      {*s.Node.Memory.WorkingSetBytes, 600 << 10},
		"node available":   {*s.Node.Memory.AvailableBytes, 400 << 10},
		"node swap":        {*s.Node.Swap.SwapAvailableBytes, 90 << 10},
		"node pids":        {uint64(*s.Node.Rlimit.NumOfRunningProcesses), 99},
		"node io":          {s.Node.IO.PSI.Some.Total, 7000},
		"pod cpu":          {*p.CPU.UsageCoreNanoSeconds, 2e9},
		"pod pids":         {*p.ProcessStats.ProcessCount, 5},
		"pod swap":         {*p.Swap.SwapAvailableBytes, 60},
		"pod pressure":     {p.CPU.PSI.Full.Total, 1000},
		"pod network":      {*p.Network.TxBytes, 8},
		"pod disk":         {*p.EphemeralStorage.UsedBytes, 60},
		"pod inodes":       {*p.EphemeralStorage.InodesUsed, 6},
		"volume":           {*p.VolumeStats[0].UsedBytes, 10},
		"volume in memory": {*p.VolumeStats[1].UsedBytes, 100},
		"container cpu":    {*c.CPU.UsageCoreNanoSeconds, 15e8},
		"working set":      {*c.Memory.WorkingSetBytes, 800},
		"available":        {*c.Memory.AvailableBytes, 3200},
		"rss":              {*c.Memory.RSSBytes, 600},
		"layer":            {*c.Rootfs.UsedBytes, 20},
		"logs":             {*c.Logs.UsedBytes, 30},
		"layers":           {*s.Node.Runtime.ContainerFs.UsedBytes, 20},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %d, want %d", what, pair[0], pair[1])
		}
	}
	if s.Node.NodeName != "edge" || s.Node.StartTime.Unix() != 50 || p.PodRef != (statsapi.PodReference{Name: "web", Namespace: "default", UID: "uid"}) || p.Network.Name != "eth0" || c.StartTime.Unix() != 200 {
		t.Errorf("%+v", s)
	}
	if *s.Node.Fs.CapacityBytes == 0 || *c.Rootfs.CapacityBytes != *s.Node.Runtime.ImageFs.CapacityBytes || p.VolumeStats[1].CapacityBytes != nil || p.VolumeStats[1].Name != "ram" {
		t.Errorf("file systems %+v", s.Node.Fs)
	}
	few := summary("/stats/summary?only_cpu_and_memory=true")
	if few.Node.Fs != nil || few.Node.Swap != nil || few.Pods[0].Network != nil || few.Pods[0].EphemeralStorage != nil || few.Pods[0].CPU == nil || few.Pods[0].Containers[0].Memory == nil || n.walks != 1 {
		t.Errorf("cpu and memory alone: %+v", few)
	}
}

func TestRequestsAreCountedByBoundedNames(t *testing.T) {
	_, e := newNode(t, func(*Config) {})
	for path, want := range map[string]string{
		"/": "other", "/metrics": "metrics", "/metrics/probes": "metrics/probes", "/metrics/x": "metrics", "/exec/a/b/c": "exec", "/nonsense/x": "other", "/stats/summary": "stats",
		"/api/v1/namespaces/default/pods/web/log": "pods/log", "/api/v1/namespaces/default/pods/web/exec": "pods/exec", "/api/v1/namespaces/default/pods/web/x": "other", "/api/v1/pods": "other", "/apis/monopod.dev/v1alpha1/agents/self/why": "agents/why",
		"/apis/monopod.dev/v1alpha1/podreports": "podreports", "/apis/monopod.dev/v1alpha1/agents/self/nonsense": "other", "/apis/monopod.dev/v1alpha1/images": "other",
		"/apis/apps/v1/podreports": "other", "/apis": "other", "/v1/pods": "other",
	} {
		if got := e.bucket(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if method("GET") != "GET" || method("BREW") != "other" {
		t.Error("methods are not bounded")
	}
	for path, long := range map[string]bool{
		"/apis/monopod.dev/v1alpha1/podreports?watch=true": true, "/api/v1/namespaces/default/pods/web/log?follow=true": true, "/api/v1/namespaces/default/pods/web/log": false, "/api/v1/namespaces/default/pods/web/attach": true, "/apis/monopod.dev/v1alpha1/podreports": false, "/exec/a/b/c": true, "/debug/pprof/profile": true, "/metrics": false, "/pods": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if e.LongRunning(r) != long {
			t.Errorf("%s: %v", path, !long)
		}
	}
}

func TestAnAnswerIsReported(t *testing.T) {
	told := 0
	_, e := newNode(t, func(c *Config) { c.Answered = func() { told++ } })
	socket := e.OnSocket(http.NotFoundHandler())
	ask(t, socket, http.MethodGet, "/apis/monopod.dev/v1alpha1/podreports")
	ask(t, e.Handler(), http.MethodGet, "/healthz")
	if told != 2 {
		t.Errorf("of 2 answers %d were told", told)
	}
}
