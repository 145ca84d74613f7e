package podtable

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func waitingFor(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func runningAnd(ready string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Ready: ready == "ready", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func terminatedWith(t corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &t}}
}

func TestStatusIsWhatKubectlPrints(t *testing.T) {
	ready := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	completed := terminatedWith(corev1.ContainerStateTerminated{Reason: "Completed"})
	for _, c := range []struct {
		want string
		pod  corev1.Pod
	}{
		{"Pending", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}},
		{"HostPortConflict", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "HostPortConflict"}}},
		{"Running", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{runningAnd("ready")}}}},
		{"CrashLoopBackOff", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{runningAnd("ready"), waitingFor("CrashLoopBackOff")}}}},
		{"ErrImagePull", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{waitingFor("ErrImagePull"), waitingFor("ContainerCreating")}}}},
		{"Error", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{terminatedWith(corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1})}}}},
		{"ExitCode:3", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{terminatedWith(corev1.ContainerStateTerminated{ExitCode: 3})}}}},
		{"Signal:9", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{terminatedWith(corev1.ContainerStateTerminated{Signal: 9, ExitCode: 137})}}}},
		{"Completed", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{completed}}}},
		{"NotReady", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{completed, runningAnd("ready")}}}},
		{"Running", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready, ContainerStatuses: []corev1.ContainerStatus{completed, runningAnd("ready")}}}},
		{"Completed", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{completed, runningAnd("not ready")}}}},
		{"Terminating", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}},
		{"Init:0/2", initPod(waitingFor("PodInitializing"), waitingFor("PodInitializing"))},
		{"Init:1/2", initPod(terminatedWith(corev1.ContainerStateTerminated{}), runningAnd("ready"))},
		{"Init:ErrImagePull", initPod(waitingFor("ErrImagePull"), waitingFor("PodInitializing"))},
		{"Init:Error", initPod(terminatedWith(corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}))},
		{"Running", initPod(terminatedWith(corev1.ContainerStateTerminated{}), sidecar())},
		{"Completed", finished(terminatedWith(corev1.ContainerStateTerminated{}), endedSidecar(5))},
		{"OutOfcpu", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "OutOfcpu", ContainerStatuses: []corev1.ContainerStatus{waitingFor("ContainerCreating")}}}},
	} {
		if got := PodStatus(&c.pod); got != c.want {
			t.Errorf("%s, want %s: %+v", got, c.want, c.pod.Status)
		}
	}
}

// TestASidecarCountsAmongTheReadyContainers, and what only initializes the pod does not.
func TestASidecarCountsAmongTheReadyContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := corev1.Pod{
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}},
			Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{terminatedWith(corev1.ContainerStateTerminated{Reason: "Completed"}), runningAnd("ready")},
			ContainerStatuses:     []corev1.ContainerStatus{runningAnd("ready"), runningAnd("not ready")},
		},
	}
	for i, name := range []string{"init", "sidecar"} {
		pod.Status.InitContainerStatuses[i].Name = name
		pod.Status.InitContainerStatuses[i].Started = new(name == "sidecar")
	}
	if got := RowOf(&pod, time.Now()).Ready; got != "2/3" {
		t.Errorf("READY is %s, want 2/3", got)
	}
}

func sidecar() corev1.ContainerStatus {
	s := runningAnd("ready")
	s.Started = new(true)
	s.Name = "sidecar"
	return s
}

func endedSidecar(code int32) corev1.ContainerStatus {
	s := terminatedWith(corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"})
	s.Started, s.Name = new(false), "sidecar"
	return s
}

// finished is an initPod whose container has completed.
func finished(statuses ...corev1.ContainerStatus) corev1.Pod {
	p := initPod(statuses...)
	p.Status.Phase = corev1.PodSucceeded
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{terminatedWith(corev1.ContainerStateTerminated{Reason: "Completed"})}
	return p
}

// initPod has a running container and two init containers; the second is a sidecar if its status is that of one.
func initPod(statuses ...corev1.ContainerStatus) corev1.Pod {
	p := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, InitContainerStatuses: statuses, ContainerStatuses: []corev1.ContainerStatus{runningAnd("ready")}}}
	p.Spec.InitContainers = make([]corev1.Container, 2)
	if n := len(statuses); statuses[n-1].Name == "sidecar" {
		p.Spec.InitContainers[n-1].Name = "sidecar"
		p.Spec.InitContainers[n-1].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	return p
}

// TestRestartsOfInitContainersCountUntilTheyAreDone, as kubectl counts them.
func TestRestartsOfInitContainersCountUntilTheyAreDone(t *testing.T) {
	crashing := waitingFor("CrashLoopBackOff")
	crashing.RestartCount = 4
	p := initPod(crashing, waitingFor("PodInitializing"))
	if r := RowOf(&p, time.Now()); r.Restarts != "4" || r.Status != "Init:CrashLoopBackOff" {
		t.Errorf("%+v", r)
	}
	done := terminatedWith(corev1.ContainerStateTerminated{Reason: "Completed"})
	done.RestartCount = 4
	p = initPod(done, sidecar())
	if r := RowOf(&p, time.Now()); r.Restarts != "0" {
		t.Errorf("%+v", r)
	}
}

func TestRowsCountReadyContainersAndRestarts(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	p.Spec.Containers = make([]corev1.Container, 3)
	crashed := runningAnd("ready")
	crashed.RestartCount = 2
	crashed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-3 * time.Minute))}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{crashed, runningAnd("not ready")}
	if r := RowOf(p, now); r.Ready != "1/3" || r.Restarts != "2 (3m ago)" || r.age != "<unknown>" || r.IP != "<none>" {
		t.Errorf("%+v", r)
	}
	p.CreationTimestamp = metav1.NewTime(now.Add(-90 * time.Second))
	if r := RowOf(p, now); r.age != "90s" {
		t.Errorf("age is %s", r.age)
	}
	p.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Hour))
	if r := RowOf(p, now); r.age != "5h" {
		t.Errorf("age is %s", r.age)
	}
}
