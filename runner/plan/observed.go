package plan

import (
	"time"

	"monopod/internal/cause"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/probe"
)

// Failure is the memory of the worker about a step that did not work, kept until it works or the manifest changes.
type Failure struct {
	// Reason is a waiting reason, e.g. ErrImagePull or CreateContainerConfigError.
	Reason  string
	Message string
	// Count is how often in a row.
	Count int
	// At is when it last failed.
	At time.Time
	// Cause is what went wrong. Its kind is always set, its Detail is Message without the name of the step.
	Cause cause.Cause
}

// Observed is everything Plan decides on besides the desired pod and the time. PodState comes from the
// runtime and survives everything; the rest is the memory of the worker and may be empty at any time.
type Observed struct {
	runner.PodState
	// Failures by Action.FailureKey: the container's name, empty for the pod. Steps that stop or remove one
	// instance, and those that follow the recorded manifest, have keys of their own, so that trouble with
	// them delays nothing else.
	Failures map[string]Failure
	// NewUID is the uid for the next sandbox, unless the manifest has one.
	NewUID string
	// Prepared tells about the slow preparations of this desired pod that went on in the background: by
	// container name for EnsureImage, the empty name for CheckPod.
	Prepared map[string]Preparation
	// Hooks are those that this agent has begun and whose container still exists.
	Hooks map[HookKey]HookState
	// Probes is what the probes of this agent say about running containers, by container id. Containers that
	// have none are not in it.
	Probes map[string]probe.Health
	// Killed holds, by container id, when KillContainer was last applied.
	Killed map[string]time.Time
	// Kept says that desired is only the manifest recorded on the sandbox: the pod is kept as it is, so
	// what runs by another definition (an update that was under way) is left alone.
	Kept bool
	// VolumesStale says that volumes which follow edits have not been synced with this pod yet.
	VolumesStale bool
	// Stale has the ids of instances that wait to be started and whose environment, or part of a volume, was made from
	// content that has changed since, or may have: a kubelet looks at that right before the start.
	Stale map[string]bool
	// Halt, unless nil, says that the pod must not run now.
	Halt *runner.Halt
	// Evict, unless nil, orders that the pod is evicted.
	Evict *Eviction
	// Grace, unless nil, is how long the pod may take to stop now that it must go, whatever its manifest says.
	Grace *time.Duration
	// Waits says that the pod may not be made again now, if it is evicted.
	Waits bool
	// Options are the configured limits.
	Options Options
	// Hashes caches the hashes of manifests between plans; may be nil.
	Hashes *podhash.Cache
}

// Options of planning.
type Options struct {
	// MaxBackOff is the longest wait before a crashed container is started again, 1 s to 300 s; 0 means 300 s.
	MaxBackOff time.Duration
	// Parallel is how many containers of one pod are made at the same time. With 0 or 1, one after another.
	Parallel int
}

// Preparation is the state of an EnsureImage or CheckPod that was not waited for.
type Preparation string

// Preparation states.
const (
	// PreparationRunning: it goes on in the background; its end is an event.
	PreparationRunning Preparation = "Running"
	// PreparationDone: it succeeded and need not be repeated now.
	PreparationDone Preparation = "Done"
)

// HookKey names a hook of an instance.
type HookKey struct {
	ContainerID string
	Hook        runner.HookKind
}

// HookState is the state of a hook that this agent has begun.
type HookState string

// States of hooks.
const (
	HookRunning HookState = "Running"
	HookDone    HookState = "Done"
	HookFailed  HookState = "Failed"
)

// FailureKey is where a failure of the action is kept in Observed.Failures. A container name has no colon.
func FailureKey(a runner.Action) string {
	switch a.Kind {
	case runner.RecordHealth, runner.MarkStarted, runner.RunHook, runner.MarkStopping, runner.StopContainer, runner.KillContainer, runner.FinishContainer, runner.RemoveContainer:
		return instanceKey(a.ContainerID)
	case runner.SyncVolumes:
		return VolumesKey
	case runner.UpdateResources:
		return ResizeKey(a.Container)
	}
	return ManifestKey(a.Manifest, a.Container)
}

// VolumesKey is the key of failures to sync volumes. A container name has no colon.
const VolumesKey = "volumes:"

func instanceKey(containerID string) string { return "id:" + containerID }

// ManifestKey is the key of failures of a container, by the manifest that the step followed.
func ManifestKey(m runner.Manifest, container string) string {
	if m == runner.DesiredManifest {
		return container
	}
	return string(m) + ":" + container
}
