package telemetry

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/node/metrics"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

func TestActionsAreCountedAsAKubeletCountsThem(t *testing.T) {
	pod := &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "c"}}}}}
	refused := &runner.StepError{Reason: runner.ReasonRunContainerError, Err: os.ErrNotExist}
	for _, row := range []struct {
		action runner.Action
		err    error
		want   metrics.Action
	}{
		{runner.Action{Kind: runner.CreateSandbox}, nil, metrics.Action{Kind: "CreateSandbox", Operation: "run_podsandbox", StartsPod: true}},
		{runner.Action{Kind: runner.StartContainer, Container: "init"}, refused, metrics.Action{Kind: "StartContainer", Operation: "start_container", ContainerType: "init_container", Reason: "RunContainerError"}},
		{runner.Action{Kind: runner.StartContainer, Container: "c"}, os.ErrNotExist, metrics.Action{Kind: "StartContainer", Operation: "start_container", ContainerType: "container", Reason: "Error"}},
		{runner.Action{Kind: runner.SyncVolumes}, nil, metrics.Action{Kind: "SyncVolumes"}},
		{runner.Action{Kind: runner.FailPod, Failure: "DeadlineExceeded"}, nil, metrics.Action{Kind: "FailPod"}},
		{runner.Action{Kind: runner.FailPod, Failure: runner.ReasonEvicted, FailureCause: cause.Cause{Kind: cause.Evicted, Resource: "memory"}}, nil, metrics.Action{Kind: "FailPod"}}, // the monitor counts it
		{runner.Action{Kind: runner.FailPod, Failure: runner.ReasonEvicted, FailureCause: cause.Cause{Kind: cause.Evicted, Fault: cause.VolumeLimit}}, nil, metrics.Action{Kind: "FailPod", EvictionSignal: "emptydirfs.limit"}},
		{runner.Action{Kind: runner.FailPod, Failure: runner.ReasonEvicted, FailureCause: cause.Cause{Kind: cause.Evicted, Fault: cause.PodLimit}}, nil, metrics.Action{Kind: "FailPod", EvictionSignal: "ephemeralpodfs.limit"}},
		{runner.Action{Kind: runner.FailPod, Failure: runner.ReasonEvicted, FailureCause: cause.Cause{Kind: cause.Evicted, Fault: cause.ContainerLimit}}, nil, metrics.Action{Kind: "FailPod", EvictionSignal: "ephemeralcontainerfs.limit"}},
	} {
		if got := actionOf(pod, row.action, row.err, 0); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.action, got, row.want)
		}
	}
}

// scrape returns the values of a Tally by metric and labels, without the buckets.
func scrape(t *testing.T, tally *metrics.Tally) map[string]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(tally)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	all := map[string]string{}
	for line := range strings.Lines(answer.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" && !strings.Contains(name, "_bucket") {
			all[name] = value
		}
	}
	return all
}

func TestWhatARuntimeDoesIsCounted(t *testing.T) {
	rt, tally := runtimetest.NewFake(), metrics.NewTally()
	rt.SetImage("present:1", true)
	rt.Fail = func(_ manifests.Key, a runner.Action) error {
		if a.Kind == runner.CreateContainer {
			return context.Canceled
		}
		return nil
	}
	counted := Instrumented{Runtime: rt, Tally: tally}
	present := runtimetest.NewContainer("here", runtimetest.ScriptServe)
	present.Image = "present:1"
	pod := runtimetest.NewPod("web", runtimetest.NewContainer("c", runtimetest.ScriptServe), present)
	for _, a := range []runner.Action{{Kind: runner.EnsureImage, Container: "c"}, {Kind: runner.EnsureImage, Container: "here"}, {Kind: runner.CreateSandbox, UID: "u"}} {
		if err := counted.Apply(t.Context(), pod.Key(), pod, a); err != nil {
			t.Fatal(a, err)
		}
	}
	if err := counted.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is lost: %v", err)
	}
	if _, err := counted.Exec(t.Context(), pod.Key(), runner.ExecRequest{ContainerID: "none", Command: []string{"x"}}); err == nil {
		t.Error("a command ran in no container")
	}
	got := scrape(t, tally)
	for name, want := range map[string]string{
		"kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"0-10MB\"}":    "1", // not the one that was there
		"kubelet_runtime_operations_total{operation_type=\"pull_image\"}":              "2",
		"kubelet_runtime_operations_total{operation_type=\"exec_sync\"}":               "1",
		"kubelet_runtime_operations_errors_total{operation_type=\"exec_sync\"}":        "1",
		"kubelet_runtime_operations_errors_total{operation_type=\"create_container\"}": "1",
		"monopod_action_errors_total{action=\"CreateContainer\",reason=\"Canceled\"}":  "1",
		"monopod_action_duration_seconds_count{action=\"CreateSandbox\"}":              "1",
		"kubelet_started_pods_total": "1",
		"kubelet_runtime_operations_duration_seconds_count{operation_type=\"run_podsandbox\"}": "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %s", name, got[name], want)
		}
	}
}

func TestOperationsHaveTheNamesOfAKubelet(t *testing.T) {
	for kind, want := range map[runner.ActionKind]string{
		runner.CreateSandbox: "run_podsandbox", runner.RemoveSandbox: "remove_podsandbox", runner.EnsureImage: "pull_image", runner.CreateContainer: "create_container",
		runner.StartContainer: "start_container", runner.StopContainer: "stop_container", runner.RemoveContainer: "remove_container", runner.UpdateResources: "update_container",
		runner.SetupNetwork: "", runner.SyncVolumes: "", runner.FailPod: "",
	} {
		if got := operationOf(kind); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}

func TestAPodIsCountedOnceWhenItHasStarted(t *testing.T) {
	tally := metrics.NewTally()
	s := NewStartClock(tally)
	change := func(uid types.UID, started time.Time) pool.Change {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
		p.UID = uid
		if !started.IsZero() {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}}
		}
		return pool.Change{Key: manifests.Key{Namespace: "default", Name: "web"}, Status: podstatus.Status{Pod: p}}
	}
	counted := func(what string, want int) {
		t.Helper()
		if n := tally.PodsStarted(); n != want {
			t.Errorf("%s: %d pods were started, want %d", what, n, want)
		}
	}
	s.Observe(change("a", s.began.Add(-time.Hour)))
	counted("found running", 0)
	s.Observe(change("b", time.Time{}))
	counted("another instance waits", 0)
	s.Observe(change("b", s.began.Add(time.Second)))
	counted("it runs", 1)
	s.Observe(change("b", s.began.Add(time.Minute)))
	counted("a container was started again", 1)
	gone := change("b", time.Time{})
	gone.Gone = true
	s.Observe(gone)
	s.Observe(change("c", s.began.Add(time.Hour)))
	counted("one that was seen only when it ran", 2)
	if len(s.pods) != 1 {
		t.Errorf("it remembers %v", s.pods)
	}
}
