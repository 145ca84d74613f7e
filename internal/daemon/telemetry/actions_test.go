package telemetry

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/node/metrics"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
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
