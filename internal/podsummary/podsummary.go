// Package podsummary sums up the containers of a pod by the rules of kubectl, for every table of pods.
//
// It must not print, and must not ask a daemon. It has no goroutines.
package podsummary

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/manifests"
)

// Summary is the aggregated state of a pod's containers.
type Summary struct {
	// Status is the first problem, or else the phase.
	Status string
	// Ready of Total containers and sidecars are ready.
	Ready, Total int
	// restarts are the restarts of init containers until these are done, then of sidecars and containers.
	restarts restarts
}

// Of returns the summary of a pod: the same as kubectl's printPod, except for pods that may not run.
func Of(p *corev1.Pod) Summary {
	s := Summary{Status: cmp.Or(p.Status.Reason, string(p.Status.Phase)), Total: len(p.Spec.Containers)}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.Status = corev1.PodReasonSchedulingGated
		}
	}
	for i := range p.Spec.InitContainers {
		if manifests.IsSidecar(&p.Spec.InitContainers[i]) {
			s.Total++
		}
	}
	if sidecars, done := s.initialize(p); done || is(p, corev1.PodInitialized) {
		s.restarts = sidecars
		s.run(p)
	}
	if mayNotRun(p) {
		s.Status = p.Status.Reason
	}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.Status = "Unknown"
	case !ended:
		s.Status = "Terminating"
	}
	return s
}

// ReadyText returns the number of ready containers as kubectl prints it.
func (s *Summary) ReadyText() string { return fmt.Sprintf("%d/%d", s.Ready, s.Total) }

// RestartsText returns the number of restarts, and how long ago the last of them was.
func (s *Summary) RestartsText(now time.Time) string {
	text := strconv.Itoa(s.restarts.n)
	if s.restarts.n > 0 && !s.restarts.last.IsZero() {
		text += " (" + duration.HumanDuration(now.Sub(s.restarts.last)) + " ago)"
	}
	return text
}

// restarts counts restarts of containers.
type restarts struct {
	n int
	// last is when the most recently restarted container terminated.
	last time.Time
}

func (r *restarts) add(c *corev1.ContainerStatus) {
	r.n += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(r.last) {
		r.last = t.FinishedAt.Time
	}
}

// terminated is the reason of pods that a node shutdown has stopped.
const terminated = "Terminated"

// mayNotRun reports whether the pod as a whole is not allowed to run: the states of its containers are not the reason. A kubelet gives no
// reason to a pending pod, and rejects a pod without any status of a container, so that kubectl has no rule for either.
func mayNotRun(p *corev1.Pod) bool {
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	running := slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
	begun := slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
	if p.Status.Reason == "" || running {
		return false
	}
	return p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodFailed && (!begun || p.Status.Reason == terminated)
}

// initialize aggregates init containers up to the first that is not done. It returns the restarts of sidecars among them.
func (s *Summary) initialize(p *corev1.Pod) (sidecars restarts, done bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.restarts.add(c)
		lasting := sidecar(p, c.Name)
		if lasting {
			sidecars.add(c)
		}
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case t != nil && t.ExitCode == 0:
			continue
		case lasting && c.Started != nil && *c.Started:
			if c.Ready {
				s.Ready++
			}
			continue
		case t != nil:
			s.Status = "Init:" + ending(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.Status = "Init:" + w.Reason
		default:
			s.Status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return sidecars, false
	}
	return sidecars, true
}

// run aggregates the containers. The first one with a reason decides.
func (s *Summary) run(p *corev1.Pod) {
	running, failure := false, ""
	for i := range slices.Backward(p.Status.ContainerStatuses) {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.Status = w.Reason
		case t != nil:
			s.Status = ending(t)
			if t.ExitCode != 0 {
				failure = s.Status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.Ready++
		}
	}
	if s.Status != "Completed" {
		return
	}
	switch {
	case running && is(p, corev1.PodReady):
		s.Status = "Running"
	case failure != "":
		s.Status = failure
	case running:
		s.Status = "NotReady"
	}
}

func ending(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// sidecar reports whether the container of that name is one.
func sidecar(p *corev1.Pod, name string) bool {
	at := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	return at >= 0 && manifests.IsSidecar(&p.Spec.InitContainers[at])
}

// is reports whether a condition of a pod is True.
func is(p *corev1.Pod, condition corev1.PodConditionType) bool {
	at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition })
	return at >= 0 && p.Status.Conditions[at].Status == corev1.ConditionTrue
}
