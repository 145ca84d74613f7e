package podstatus

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
)

// Doing is an action that the runtime is carrying out.
type Doing struct {
	Kind runner.ActionKind
	// Container is the one that it is about; empty: it is about the pod.
	Container string
	// Phase is the part of the action that is under way; empty: this is about the action as a whole. The network is set up while other
	// actions are carried out.
	Phase string
	// Since is when it began, by the machine's clock.
	Since time.Time
}

// Halted is set if the pod must not run now.
func (s *Status) Halted() bool { return s.halt != nil }

// Stopped reports whether no container of the pod runs, or will run while its Halt lasts.
func (s *Status) Stopped() bool {
	return s.Looked && s.halt != nil && !s.Running && (!s.halt.Remove || !s.exists)
}

// Status is a pod as users see it: the manifest with the status filled in.
type Status struct {
	Pod *corev1.Pod
	// Origin is where it was written.
	Origin manifests.Origin
	// Recorded is the manifest that has been carried out to the end; nil when none has.
	Recorded *manifests.Pod
	// Looked is set once this agent has observed the pod; before, the status shows only the desired pod.
	Looked bool
	// Why describes the first problem in one line; empty if there is none.
	Why string
	// Trouble is that problem as a value; Why is its text.
	Trouble Trouble
	// Probes are the current results of the pod's probes.
	Probes []model.Probe
	// Doing is what the runtime is carrying out at this moment, the oldest first.
	Doing []Doing
	// EndedBy says of containers, by name, that their last instance did not end by itself; those that did are not in it.
	EndedBy map[string]runner.EndedBy
	// Failing are the causes of the steps that failed last and are repeated, by container.
	Failing []cause.Cause
	// Refused says of containers, by name, why the process of their last instance could not be started.
	Refused map[string]cause.Cause
	// NextTry is when the worker will act again by itself; zero when it waits for an event.
	NextTry time.Time
	// halt is why the pod must not run now; running is set while a container of it runs.
	halt *runner.Halt
	// notAdmitted is what NotAdmitted returns.
	notAdmitted *runner.Held
	Running     bool
	// exists is set if the pod has a record.
	exists bool
	// Images are the digests of the images that its containers run, or ran, with; keys are those of manifests.Pod.Images.
	Images map[string]string
}

// NotAdmitted is why a pod is not let start, for a reason that nothing under way will end; nil: it is, or it waits for something.
func (s *Status) NotAdmitted() *runner.Held { return s.notAdmitted }

// Key returns the pod's namespace and name.
func (s Status) Key() manifests.Key {
	return manifests.Key{Namespace: s.Pod.Namespace, Name: s.Pod.Name}
}

// Equal reports whether two statuses look the same to a user.
func (s Status) Equal(o Status) bool { return reflect.DeepEqual(s, o) }
