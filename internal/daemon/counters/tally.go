// Package counters turns what is done to pods into metrics and traces.
//
// It must not change what is done. It has no goroutines.
package counters

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

// Timed is a Runtime whose actions are counted and traced.
type Timed struct {
	runner.Runtime
	Tally  *metrics.Tally
	Traces *Traces
}

// Apply implements runner.Runtime.
func (t Timed) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
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
func (t Timed) pulled(p runner.ImageProgress) {
	if !p.Pulling && !p.Present {
		t.Tally.Pulled(p.Size, p.Took)
	}
}

// Exec implements runner.Runtime.
func (t Timed) Exec(ctx context.Context, key manifests.Key, r runner.ExecRequest) (runner.ExecResult, error) {
	began := time.Now()
	res, err := t.Runtime.Exec(ctx, key, r)
	t.Tally.Action(metrics.Action{Kind: "Exec", Operation: "exec_sync", Reason: reasonOf(err), Took: time.Since(began)})
	return res, err
}

// actionOf describes an action for those who count.
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

// operationOf is what a kubelet's runtime calls an action.
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

// reasonOf is the word for an error, empty for none. There are few of them.
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

// evictionSignal is a kubelet's word for why a pod is evicted; empty for what the machine is short of, which is counted when the
// eviction is ordered.
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

// startClock measures how long pods take to start, from what is told of them.
type startClock struct {
	tally *metrics.Tally
	// began is when this agent did: what ran before it was not started by it.
	began time.Time

	mu sync.Mutex
	// pods are those that there are: since when they are wanted, zero for those that have been counted.
	pods map[manifests.Key]podStart
}

type podStart struct {
	uid   string
	since time.Time
}

func NewStartClock(tally *metrics.Tally) *startClock {
	return &startClock{tally: tally, began: time.Now(), pods: map[manifests.Key]podStart{}}
}

// Note takes down a change of a pod.
func (s *startClock) Note(c pool.Change) {
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
		// Of the times that containers were started only whole seconds are told.
		if !ran.Before(s.began.Truncate(time.Second)) {
			s.tally.PodStarted(time.Since(w.since))
		}
		w.since = time.Time{}
	}
	s.pods[c.Key] = w
}

// startedAt is when the last container of a pod that runs was started; zero: it does not run.
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
