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

// Halted reports whether the pod must not run now.
func (s *Status) Halted() bool { return s.halt != nil }

// Stopped reports whether no container of the pod runs, or will run during its Halt.
func (s *Status) Stopped() bool {
	return s.Looked && s.halt != nil && !s.Running && (!s.halt.Remove || !s.exists)
}

// Status is a pod as users see it: the manifest with the status filled in.
type Status struct {
	Pod *corev1.Pod
	// Origin is where the manifest was read from.
	Origin manifests.Origin
	// Recorded is the manifest that has been applied completely; nil if none has.
	Recorded *manifests.Pod
	// Desired is the manifest to apply; nil if the pod is not desired.
	Desired *manifests.Pod
	// Looked is set once this agent has observed the pod. Before, the status shows only the desired pod.
	Looked bool
	// Why describes the first problem in one line; empty if there is none.
	Why string
	// Trouble is the same problem as a value; Why is its text.
	Trouble model.Trouble
	// More are the problems of other containers.
	More []model.Trouble
	// Probes are the current results of the pod's probes.
	Probes []model.Probe
	// Doing are the actions that the runtime is applying, oldest first.
	Doing []model.Doing
	// EndedBy contains, by container name, what ended the last instance. Instances that ended by themselves are not in it.
	EndedBy map[string]runner.EndedBy
	// StoppedFor contains, by container name, the failure of its own for which the agent stopped the last instance.
	StoppedFor map[string]runner.StopCause
	// Failing are the causes of failed steps that are being retried, by container.
	Failing []cause.Cause
	// Refused contains, by container name, why the process of the last instance could not be started.
	Refused map[string]cause.Cause
	// NextTry is when the worker acts again by itself; zero if it waits for an event.
	NextTry time.Time
	// halt is why the pod must not run now; running is set while a container of it runs.
	halt *runner.Halt
	// notAdmitted is returned by NotAdmitted.
	notAdmitted *runner.Held
	Running     bool
	// exists is set if the pod has a record.
	exists bool
	// Images are the digests of the images that its containers run, or ran, with. Keys are those of manifests.Pod.Images.
	Images map[string]string
}

// NotAdmitted returns why the pod may not start, for a reason that nothing in progress will resolve; nil if it may start or only has to
// wait.
func (s *Status) NotAdmitted() *runner.Held { return s.notAdmitted }

// Key returns the pod's namespace and name.
func (s Status) Key() manifests.Key {
	return manifests.Key{Namespace: s.Pod.Namespace, Name: s.Pod.Name}
}

// Equal reports whether two statuses look the same to a user.
func (s Status) Equal(o Status) bool { return reflect.DeepEqual(s, o) }
