package podsummary_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/podsummary"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// kubectl is printPod of pkg/printers/internalversion/printers.go of Kubernetes, reduced to READY, STATUS and RESTARTS. It follows the source
// line by line, so that the two can be compared by eye; nothing of it is taken from the code under test.
func kubectl(pod *corev1.Pod) (ready, status, restarted string) {
	restarts, restartableInitContainerRestarts := 0, 0
	totalContainers, readyContainers := len(pod.Spec.Containers), 0
	lastRestartDate, lastRestartableInitContainerRestartDate := metav1.Time{}, metav1.Time{}
	reason := string(pod.Status.Phase)
	if pod.Status.Reason != "" {
		reason = pod.Status.Reason
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == "SchedulingGated" {
			reason = "SchedulingGated"
		}
	}
	restartable := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == "Always" {
			restartable[c.Name] = true
			totalContainers++
		}
	}
	initializing := false
	for i := range pod.Status.InitContainerStatuses {
		container := pod.Status.InitContainerStatuses[i]
		restarts += int(container.RestartCount)
		if container.LastTerminationState.Terminated != nil {
			terminatedDate := container.LastTerminationState.Terminated.FinishedAt
			if lastRestartDate.Before(&terminatedDate) {
				lastRestartDate = terminatedDate
			}
		}
		if restartable[container.Name] {
			restartableInitContainerRestarts += int(container.RestartCount)
			if container.LastTerminationState.Terminated != nil {
				terminatedDate := container.LastTerminationState.Terminated.FinishedAt
				if lastRestartableInitContainerRestartDate.Before(&terminatedDate) {
					lastRestartableInitContainerRestartDate = terminatedDate
				}
			}
		}
		switch {
		case container.State.Terminated != nil && container.State.Terminated.ExitCode == 0:
			continue
		case restartable[container.Name] && container.Started != nil && *container.Started:
			if container.Ready {
				readyContainers++
			}
			continue
		case container.State.Terminated != nil:
			reason = "Init:" + terminatedReason(container.State.Terminated)
		case container.State.Waiting != nil && len(container.State.Waiting.Reason) > 0 && container.State.Waiting.Reason != "PodInitializing":
			reason = "Init:" + container.State.Waiting.Reason
		default:
			reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		initializing = true
		break
	}
	if !initializing || conditionIsTrue(pod, corev1.PodInitialized) { //nolint:nestif // as kubectl has it
		restarts, lastRestartDate = restartableInitContainerRestarts, lastRestartableInitContainerRestartDate
		hasRunning, errorReason := false, ""
		for _, container := range slices.Backward(pod.Status.ContainerStatuses) {
			restarts += int(container.RestartCount)
			if container.LastTerminationState.Terminated != nil {
				terminatedDate := container.LastTerminationState.Terminated.FinishedAt
				if lastRestartDate.Before(&terminatedDate) {
					lastRestartDate = terminatedDate
				}
			}
			switch {
			case container.State.Waiting != nil && container.State.Waiting.Reason != "":
				reason = container.State.Waiting.Reason
			case container.State.Terminated != nil:
				reason = terminatedReason(container.State.Terminated)
				if container.State.Terminated.ExitCode != 0 {
					errorReason = reason
				}
			case container.Ready && container.State.Running != nil:
				hasRunning = true
				readyContainers++
			}
		}
		if reason == "Completed" {
			if hasRunning && conditionIsTrue(pod, corev1.PodReady) {
				reason = "Running"
			} else if errorReason != "" {
				reason = errorReason
			} else if hasRunning {
				reason = "NotReady"
			}
		}
	}
	if pod.DeletionTimestamp != nil && pod.Status.Reason == "NodeLost" {
		reason = "Unknown"
	} else if pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
		reason = "Terminating"
	}
	restartsStr := strconv.Itoa(restarts)
	if restarts != 0 && !lastRestartDate.IsZero() {
		restartsStr = fmt.Sprintf("%d (%s ago)", restarts, duration.HumanDuration(now.Sub(lastRestartDate.Time)))
	}
	return fmt.Sprintf("%d/%d", readyContainers, totalContainers), reason, restartsStr
}

func terminatedReason(t *corev1.ContainerStateTerminated) string {
	if len(t.Reason) == 0 {
		if t.Signal != 0 {
			return fmt.Sprintf("Signal:%d", t.Signal)
		}
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
	return t.Reason
}

func conditionIsTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// generator makes pods of all shapes that the rules distinguish.
type generator struct{ *rand.Rand }

func oneOf[T any](g generator, all ...T) T { return all[g.IntN(len(all))] }

func (g generator) pod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Status.Phase = oneOf(g, corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown)
	if p.Status.Phase != corev1.PodPending && g.IntN(4) == 0 { // TestAPodThatMayNotRunShowsWhy has the others
		p.Status.Reason = oneOf(g, "Evicted", "NodeLost", "DeadlineExceeded")
	}
	if g.IntN(6) == 0 {
		p.DeletionTimestamp = &metav1.Time{Time: now}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.PodScheduled} {
		if g.IntN(3) > 0 {
			c := corev1.PodCondition{Type: kind, Status: oneOf(g, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)}
			c.Reason = oneOf(g, "", "", "SchedulingGated")
			p.Status.Conditions = append(p.Status.Conditions, c)
		}
	}
	for i := range g.IntN(4) {
		c := corev1.Container{Name: "i" + strconv.Itoa(i)}
		c.RestartPolicy = oneOf(g, nil, new(corev1.ContainerRestartPolicyAlways), new(corev1.ContainerRestartPolicyOnFailure))
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, g.status(c.Name))
	}
	for i := range 1 + g.IntN(3) {
		c := corev1.Container{Name: "c" + strconv.Itoa(i)}
		p.Spec.Containers = append(p.Spec.Containers, c)
		if g.IntN(8) > 0 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, g.status(c.Name))
		}
	}
	if p.Status.Reason != "" { // with a reason, a failed pod whose containers never began is one that may not run
		first := &p.Status.ContainerStatuses
		*first = append([]corev1.ContainerStatus{{Name: "c0", State: g.ended()}}, (*first)[min(1, len(*first)):]...)
	}
	return p
}

func (g generator) status(name string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, Ready: g.IntN(2) == 0, Started: oneOf(g, nil, new(true), new(false)), RestartCount: int32(max(0, g.IntN(6)-2))}
	switch g.IntN(4) {
	case 0:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: oneOf(g, "", "PodInitializing", "ContainerCreating", "CrashLoopBackOff")}
	case 1:
		s.State.Running = &corev1.ContainerStateRunning{}
	case 2, 3:
		s.State = g.ended()
	}
	if g.IntN(3) == 0 {
		s.LastTerminationState = g.ended()
	}
	return s
}

func (g generator) ended() corev1.ContainerState {
	t := &corev1.ContainerStateTerminated{
		ExitCode: oneOf[int32](g, 0, 0, 1, 137), Signal: oneOf[int32](g, 0, 0, 9), Reason: oneOf(g, "", "Completed", "Completed", "Error", "OOMKilled"),
	}
	if g.IntN(4) > 0 {
		t.FinishedAt = metav1.NewTime(now.Add(-time.Duration(g.IntN(100000)) * time.Second))
	}
	return corev1.ContainerState{Terminated: t}
}

func TestPodsAreSummedUpAsByKubectl(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(26, 6))}
	seen := map[string]bool{}
	for range 50_000 {
		p := g.pod()
		ready, status, restarts := kubectl(p)
		s := podsummary.Of(p)
		if s.ReadyText() != ready || s.Status != status || s.RestartsText(now) != restarts {
			t.Fatalf("%s %s %s, kubectl prints %s %s %s: %+v", s.ReadyText(), s.Status, s.RestartsText(now), ready, status, restarts, p)
		}
		seen[status] = true
	}
	for _, want := range []string{
		"Pending", "Running", "Succeeded", "Failed", "Completed", "NotReady", "Terminating", "Unknown", "Error", "OOMKilled", "SchedulingGated",
		"Signal:9", "ExitCode:1", "CrashLoopBackOff", "Init:0/1", "Init:1/3", "Init:Error", "Init:Signal:9", "Init:ExitCode:1", "Init:CrashLoopBackOff",
	} {
		if !seen[want] {
			t.Errorf("no generated pod was %s", want)
		}
	}
}

// TestAPodThatMayNotRunShowsWhy: kubectl has no rule for such pods, since a kubelet reports no containers of them.
func TestAPodThatMayNotRunShowsWhy(t *testing.T) {
	waits := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	ended := []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}}}
	runs := []corev1.ContainerStatus{{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for name, tt := range map[string]struct {
		want   string
		status corev1.PodStatus
	}{
		"no room":                  {"OutOfcpu", corev1.PodStatus{Phase: corev1.PodPending, Reason: "OutOfcpu", ContainerStatuses: waits("ContainerCreating")}},
		"with init containers":     {"HostPortConflict", corev1.PodStatus{Phase: corev1.PodPending, Reason: "HostPortConflict", InitContainerStatuses: waits("PodInitializing"), ContainerStatuses: waits("PodInitializing")}},
		"rejected":                 {"OutOfmemory", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfmemory", ContainerStatuses: waits("ContainerCreating")}},
		"drained":                  {"Drained", corev1.PodStatus{Phase: corev1.PodPending, Reason: "Drained", ContainerStatuses: ended}},
		"drained, and being ended": {"Drained", corev1.PodStatus{Phase: corev1.PodRunning, Reason: "Drained", ContainerStatuses: runs}},
		"machine shut down":        {"Terminated", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", ContainerStatuses: ended}},
		"evicted":                  {"Error", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", ContainerStatuses: ended}},
		"only starting":            {"ContainerCreating", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waits("ContainerCreating")}},
	} {
		p := &corev1.Pod{Status: tt.status}
		p.Spec.InitContainers = make([]corev1.Container, len(tt.status.InitContainerStatuses))
		if got := podsummary.Of(p).Status; got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if p.DeletionTimestamp = (&metav1.Time{Time: now}); p.Status.Phase == corev1.PodPending && podsummary.Of(p).Status != "Terminating" {
			t.Errorf("%s: it is being removed", name)
		}
	}
}
