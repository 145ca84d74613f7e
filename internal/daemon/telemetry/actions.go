// Package telemetry turns the actions on pods and their state into metrics and traces.
//
// It must not influence the actions. It starts no goroutines.
package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/node/metrics"
	"monopod/runner"
	"monopod/runner/pool"
)

// Instrumented is a runtime whose actions are counted, timed and traced.
type Instrumented struct {
	runner.Runtime
	Tally  *metrics.Tally
	Traces *Traces
}

// Apply implements runner.Runtime.
func (t Instrumented) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if a.Kind == runner.EnsureImage || a.Kind == runner.CheckPod {
		ctx = runner.WithImageProgress(ctx, t.pulled)
	}
	ctx, over := t.Traces.begin(ctx, key, pod, a)
	began := time.Now()
	err := t.Runtime.Apply(ctx, key, pod, a)
	over(err)
	t.Tally.Action(actionOf(pod, a, err, time.Since(began)))
	return err
}

// pulled counts an image that was pulled.
func (t Instrumented) pulled(p runner.ImageProgress) {
	if !p.Pulling && !p.Present {
		t.Tally.Pulled(p.Size, p.Took)
	}
}

// Exec implements runner.Runtime.
func (t Instrumented) Exec(ctx context.Context, key manifests.Key, r runner.ExecRequest) (runner.ExecResult, error) {
	began := time.Now()
	res, err := t.Runtime.Exec(ctx, key, r)
	t.Tally.Action(metrics.Action{Kind: "Exec", Operation: "exec_sync", Reason: reasonOf(err), Took: time.Since(began)})
	return res, err
}

// actionOf returns the labels and the duration of an action.
func actionOf(pod *manifests.Pod, a runner.Action, err error, took time.Duration) metrics.Action {
	m := metrics.Action{Kind: string(a.Kind), Operation: operationOf(a.Kind), Reason: reasonOf(err), Took: took}
	switch a.Kind {
	case runner.CreateSandbox:
		m.StartsPod = true
	case runner.StartContainer:
		m.ContainerType = containerType(pod, a.Container)
	case runner.FailPod:
		if a.Failure == runner.ReasonEvicted {
			m.EvictionSignal = evictionSignal(a.FailureCause)
		}
	}
	return m
}

// operationOf returns the operation_type label of a kubelet for an action; empty: a kubelet has none.
func operationOf(kind runner.ActionKind) string {
	switch kind {
	case runner.CreateSandbox:
		return "run_podsandbox"
	case runner.RemoveSandbox:
		return "remove_podsandbox"
	case runner.EnsureImage:
		return "pull_image"
	case runner.CreateContainer:
		return "create_container"
	case runner.StartContainer:
		return "start_container"
	case runner.StopContainer:
		return "stop_container"
	case runner.RemoveContainer:
		return "remove_container"
	case runner.UpdateResources:
		return "update_container"
	}
	return ""
}

// reasonOf returns a label for an error, from a small set; empty for nil.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if step, ok := errors.AsType[*runner.StepError](err); ok && step.Reason != "" {
		return step.Reason
	}
	if errors.Is(err, context.Canceled) {
		return "Canceled"
	}
	return "Error"
}

func containerType(pod *manifests.Pod, name string) string {
	if pod != nil {
		for i := range pod.Object.Spec.InitContainers {
			if pod.Object.Spec.InitContainers[i].Name == name {
				return "init_container"
			}
		}
	}
	return "container"
}

// evictionSignal returns a kubelet's label for the cause of an eviction; empty for node pressure, which the monitor counts itself.
func evictionSignal(c cause.Cause) string {
	switch {
	case c.Fault == cause.VolumeLimit:
		return "emptydirfs.limit"
	case c.Fault == cause.PodLimit:
		return "ephemeralpodfs.limit"
	case c.Fault == cause.ContainerLimit:
		return "ephemeralcontainerfs.limit"
	case c.Resource != "":
		return ""
	}
	return "other"
}

// StartClock measures how long pods take to start, from the changes of their status.
type StartClock struct {
	tally *metrics.Tally
	// began is when this process started: pods that ran before are not counted.
	began time.Time

	mu sync.Mutex
	// pods are the existing ones: since when they are desired, or zero once counted.
	pods map[manifests.Key]podStart
}

type podStart struct {
	uid   string
	since time.Time
}

// NewStartClock returns a clock that starts now.
func NewStartClock(tally *metrics.Tally) *StartClock {
	return &StartClock{tally: tally, began: time.Now(), pods: map[manifests.Key]podStart{}}
}

// Observe takes a change of a pod.
func (s *StartClock) Observe(c pool.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Gone || c.Status.Pod == nil {
		delete(s.pods, c.Key)
		return
	}
	pod := c.Status.Pod
	w, known := s.pods[c.Key]
	if !known || w.uid != string(pod.UID) && w.since.IsZero() {
		w = podStart{since: time.Now()}
	}
	w.uid = string(pod.UID)
	if ran := startedAt(pod); !w.since.IsZero() && !ran.IsZero() {
		// start times of containers have whole seconds
		if !ran.Before(s.began.Truncate(time.Second)) {
			s.tally.PodStarted(time.Since(w.since))
		}
		w.since = time.Time{}
	}
	s.pods[c.Key] = w
}

// startedAt returns when the last container of a running pod was started; zero: the pod is not running.
func startedAt(pod *corev1.Pod) (last time.Time) {
	if pod.Status.Phase != corev1.PodRunning {
		return last
	}
	for i := range pod.Status.ContainerStatuses {
		if r := pod.Status.ContainerStatuses[i].State.Running; r != nil && r.StartedAt.After(last) {
			last = r.StartedAt.Time
		}
	}
	return last
}
