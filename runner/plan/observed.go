package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan/retry"
	"monopod/runner/probe"
)

// Failure is the worker's memory of a failed step.
type Failure = retry.Failure

// Observed is all that Plan decides on besides the desired pod and the time. PodState comes from the runtime and survives restarts; the
// rest is the memory of the worker and may be empty at any time.
type Observed struct {
	runner.PodState
	// Failures are keyed by Action.FailureKey: the container's name, or empty for the pod. Steps that stop or remove one instance, and steps
	// that follow the recorded manifest, have keys of their own, so that their failures delay nothing else.
	Failures map[string]Failure
	// NewUID is the uid of the next sandbox, unless the manifest has one.
	NewUID string
	// Prepared holds the slow preparations for this desired pod that run in the background: by container name for EnsureImage, under the empty
	// name for CheckPod.
	Prepared map[string]Preparation
	// Hooks are the hooks started by this agent whose container still exists.
	Hooks map[HookKey]HookState
	// Probes are the probe results of running containers, by container id. Containers without probes are missing.
	Probes map[string]probe.Health
	// Killed holds, by container id, when KillContainer was last applied.
	Killed map[string]time.Time
	// Kept reports that desired is only the manifest recorded on the sandbox. The pod is kept as it is; a container that runs with another
	// definition (of an update in progress) is left alone.
	Kept bool
	// VolumesStale reports that volumes that follow edits of their objects have not been synced for this pod yet.
	VolumesStale bool
	// Stale has the ids of created instances whose environment or subPath volume was made from content that has or may have changed since. The
	// kubelet resolves both immediately before the start.
	Stale map[string]bool
	// Halt is set if the pod must not run now.
	Halt *runner.Halt
	// Evict is set if the pod must be evicted.
	Evict *Eviction
	// Grace, if set, overrides the grace period of the manifest for a pod that is being removed.
	Grace *time.Duration
	// Waits reports that the pod, if evicted, must not be recreated now.
	Waits bool
	// Options are the configured limits.
	Options Options
	// Hashes caches the hashes of manifests between plans; it may be nil.
	Hashes *podhash.Cache
}

// Options of planning.
type Options struct {
	// MaxBackOff is the longest wait before a crashed container is restarted, 1 s to 300 s; 0 means 300 s.
	MaxBackOff time.Duration
	// Parallel is the number of containers of one pod that are created concurrently. 0 and 1 mean one after another.
	Parallel int
}

// BackOffLimit returns MaxBackOff within its bounds.
func (o Options) BackOffLimit() time.Duration {
	if o.MaxBackOff == 0 {
		return retry.MaxBackOff
	}
	return min(max(o.MaxBackOff, time.Second), retry.MaxBackOff)
}

// NextRestart decides about an exited instance of a pod.
func NextRestart(now time.Time, pod *corev1.PodSpec, c *runner.Container, o Options) retry.Restart {
	return retry.Next(now, retry.Policy(pod, c), c, o.BackOffLimit())
}

// Preparation is the state of an EnsureImage or CheckPod that runs in the background.
type Preparation string

// Preparation states.
const (
	// PreparationRunning means that it is still running; its end is an event.
	PreparationRunning Preparation = "Running"
	// PreparationDone means that it succeeded and need not be repeated now.
	PreparationDone Preparation = "Done"
)

// HookKey names a hook of an instance.
type HookKey struct {
	ContainerID string
	Hook        runner.HookKind
}

// HookState is the state of a hook that this agent has started.
type HookState string

// States of hooks.
const (
	HookRunning HookState = "Running"
	HookDone    HookState = "Done"
	HookFailed  HookState = "Failed"
)

// FailureKey returns the key of the action's failures in Observed.Failures. Prefixes end in a colon, which container names cannot contain.
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

// ManifestKey returns the key of failures of a container, which depends on the manifest that the step followed.
func ManifestKey(m runner.Manifest, container string) string {
	if m == runner.DesiredManifest {
		return container
	}
	return string(m) + ":" + container
}
