package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// podRow returns the row of a pod, with the columns of kubectl.
func podRow(p *corev1.Pod, now time.Time) []any {
	s := summarize(p)
	restarts := strconv.Itoa(s.restarts.n)
	if s.restarts.n > 0 && !s.restarts.last.IsZero() {
		restarts += " (" + since(s.restarts.last, now) + " ago)"
	}
	ip, gates := "", none
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	if n := len(p.Spec.ReadinessGates); n > 0 {
		met := 0
		for _, g := range p.Spec.ReadinessGates {
			if is(p, g.ConditionType) {
				met++
			}
		}
		gates = fmt.Sprintf("%d/%d", met, n)
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.status, restarts, created(p, now),
		cmp.Or(ip, none), cmp.Or(p.Spec.NodeName, none), cmp.Or(p.Status.NominatedNodeName, none), gates,
	}
}

// summary is the aggregated state of a pod's containers.
type summary struct {
	status       string
	ready, total int
	// restarts are the restarts of init containers until these are done, then of sidecars and containers.
	restarts restarts
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

func summarize(p *corev1.Pod) summary {
	s := summary{status: cmp.Or(p.Status.Reason, string(p.Status.Phase)), total: len(p.Spec.Containers)}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	for i := range p.Spec.InitContainers {
		if manifests.IsSidecar(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	if sidecars, done := s.initialize(p); done || is(p, corev1.PodInitialized) {
		s.restarts = sidecars
		s.run(p)
	}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case !ended:
		s.status = "Terminating"
	}
	return s
}

// initialize aggregates init containers up to the first that is not done. It returns the restarts of sidecars among them.
func (s *summary) initialize(p *corev1.Pod) (sidecars restarts, done bool) {
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
				s.ready++
			}
			continue
		case t != nil:
			s.status = "Init:" + ending(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.status = "Init:" + w.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return sidecars, false
	}
	return sidecars, true
}

// run aggregates the containers. The first one with a reason decides.
func (s *summary) run(p *corev1.Pod) {
	running, failure := false, ""
	for i := range slices.Backward(p.Status.ContainerStatuses) {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.status = w.Reason
		case t != nil:
			s.status = ending(t)
			if t.ExitCode != 0 {
				failure = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	switch {
	case running && is(p, corev1.PodReady):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
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
