// Package runner is the vocabulary of running pods: the observed state of a pod, the actions that change it, the reasons of failures, and
// Runtime, the interface through which runner/pool reaches containerd (runner/ctrd) or a fake (runner/runtimetest).
//
// It holds data and no decisions: those are in runner/plan, runner/admit and runner/podstatus. It must not know where manifests come from
// nor how a container is made.
package runner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner/hook"
)

// PodState is what the runtime knows about one pod at one moment, read from containerd's labels and task
// status only. It is a plain snapshot: planning never changes it.
type PodState struct {
	// Sandbox is nil when nothing of the pod exists.
	Sandbox *Sandbox
	// Place is the manifest of the last sandbox while there is none: that was removed because the pod is made anew, and the next one is
	// not there yet.
	Place *manifests.Pod
	// Containers holds every container record of the pod, oldest first. The last one with a given name is
	// the current one, the others are leftovers of an update or a restart in progress.
	Containers []Container
}

// Sandbox is the pod-level record: identity, namespaces and network. There is no pause process.
type Sandbox struct {
	ID string
	// UID is metadata.uid of the pod. It changes only when the sandbox is replaced.
	UID string
	// Hash is podhash.Sandbox of the manifest the sandbox was made for.
	Hash string
	// QOSClass is the class whose cgroups the pod's is among; empty: it was made when there were none.
	QOSClass corev1.PodQOSClass
	// ResourcesHash is podhash.PodResources of what the pod's cgroup was set to; empty: not known.
	ResourcesHash string
	// Pod is the manifest last recorded by RecordPod or CreateSandbox, with Origin.
	Pod       *manifests.Pod
	CreatedAt time.Time
	// Alive says that its namespaces exist: it was made in this boot and its pins are in place.
	Alive bool
	// Network says how far CNI ADD has come. Host-network sandboxes are always NetworkReady.
	Network NetworkState
	// IPs are the pod's addresses, IPv4 first; empty for host-network pods.
	IPs []string
	// Age is how long it has existed, sleep of the machine included, by a clock that cannot be set. It is only
	// known of pods whose recorded manifest has a deadline, 0 for others.
	Age time.Duration
	// Failed is what FailPod has recorded; nil for a pod that has not failed as a whole.
	Failed *PodFailure
	// Evictions was given to CreateSandbox: how often in a row the pod has been evicted before.
	Evictions int
	// Disk is what the pod used of the disk when that was last measured, of pods that LimitsDisk; nil: not known.
	Disk *DiskUsage
}

// PodFailure says that a pod has failed for a reason that is none of one container.
type PodFailure struct {
	// Reason is e.g. DeadlineExceeded.
	Reason string
	// Message says more; empty: the reason says it all.
	Message string
	// Cause is why, for the reasons that have several; else zero.
	Cause cause.Cause
	At    time.Time
}

// ReasonDeadlineExceeded is why a pod fails that runs longer than activeDeadlineSeconds.
const ReasonDeadlineExceeded = "DeadlineExceeded"

// NetworkState is the progress of a sandbox's network set-up.
type NetworkState string

// Network states.
const (
	// NetworkPending: CNI ADD runs in this process, or never ran or was cut off and must be repeated.
	NetworkPending NetworkState = "Pending"
	// NetworkReady: ADD succeeded, or none is needed.
	NetworkReady NetworkState = "Ready"
)

// ContainerState is where a container is in its life:
//
//	(none) --CreateContainer--> Created --StartContainer--> Running --exit--> Exited --RemoveContainer--> (none)
type ContainerState string

// Container states.
const (
	// ContainerCreated: record, snapshot and task exist, the process has not been started.
	ContainerCreated ContainerState = "Created"
	// ContainerRunning: its process runs.
	ContainerRunning ContainerState = "Running"
	// ContainerExited: its process ended, or never came to be; see Container.Exit.
	ContainerExited ContainerState = "Exited"
)

// Container is one container record.
type Container struct {
	ID   string
	Name string
	// SandboxID is the sandbox it was made in; differs from Sandbox.ID for leftovers of a replaced one.
	SandboxID string
	// Hash is podhash.Container of the definition it was made from.
	Hash string
	// ResourcesHash is podhash.Resources of what its cgroup has; empty: not known.
	ResourcesHash string
	// Resources are those its cgroup has; nil: not known.
	Resources *corev1.ResourceRequirements
	Image     string
	ImageID   string
	// ImageDigest is the digest of the manifest or index of its image. VolumeImages are those of the images that it mounts, by volume.
	ImageDigest  string
	VolumeImages map[string]string
	State        ContainerState
	PID          uint32
	// RestartCount, BackOff and Last were given to CreateContainer.
	RestartCount int
	// BackOff is how long to wait after this instance's exit before the next start; see restart.go.
	BackOff   time.Duration
	Last      *Termination
	CreatedAt time.Time
	// EarlierBoot says that it was made before the machine was started again, with which it ended at the latest.
	EarlierBoot bool
	// StartedAt is zero until the process ran.
	StartedAt time.Time
	// Exit is set when State is ContainerExited.
	Exit *Termination
	// Recorded says that Exit is safe on the container's labels and the task is gone (FinishContainer ran).
	Recorded bool
	// StopSentAt is when StopContainer last signaled it; zero when it was never asked to stop.
	StopSentAt time.Time
	// StoppingAt is when MarkStopping was applied, or StopContainer began: its grace period counts from then, though the signal
	// may come later. Zero when it was never asked to stop.
	StoppingAt time.Time
	// StopCause says whether it was stopped for a fault of its own; see the constants.
	StopCause StopCause
	// Round was given to CreateContainer: how often all containers of the sandbox have been started again by a
	// rule with the action RestartAllContainers. Those of an earlier round than the latest are to go.
	Round int
	// PostStart says whether its postStart hook still has to run. It was made with the container: a hook that an
	// edit adds is for the next one.
	PostStart PostStart
	// Health is what its probes said last, by RecordHealth.
	Health Health
}

// PostStart is how far the postStart hook of an instance is.
type PostStart string

// States of postStart hooks.
const (
	// PostStartNone: there is none.
	PostStartNone PostStart = ""
	// PostStartPending: it runs after the start; until it has, the container counts as not started.
	PostStartPending PostStart = "Pending"
	// PostStartDone: it has succeeded.
	PostStartDone PostStart = "Done"
)

// StopCause is why an instance was told to stop. With the empty one nothing was wrong with it: it is not wanted any
// more, and if that is taken back it starts again at once. All others count as a failure of the container.
type StopCause string

// Causes.
const (
	StopUnwanted StopCause = ""
	// StopPostStart: its postStart hook has failed.
	StopPostStart StopCause = "PostStartHookError"
	// StopRestartAll: another container's exit wants all of them to be started again. It is no failure of this one.
	StopRestartAll StopCause = "RestartingAllContainers"
	// StopLivenessProbe and StopStartupProbe: that probe has failed.
	StopLivenessProbe StopCause = "LivenessProbe"
	StopStartupProbe  StopCause = "StartupProbe"
)

// Failed says that the instance was stopped for a fault of its own.
func (s StopCause) Failed() bool { return s != StopUnwanted && s != StopRestartAll }

// Leaving says that the instance was told to stop, or is going to be.
func (c *Container) Leaving() bool { return !c.StopSentAt.IsZero() || !c.StoppingAt.IsZero() }

// Termination tells how a container instance ended.
type Termination struct {
	ContainerID string    `json:"containerID"`
	ExitCode    int       `json:"exitCode"`
	Reason      string    `json:"reason"`
	Message     string    `json:"message,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	// By says what ended it, unless it ended by itself or for a fault of its own.
	By EndedBy `json:"by,omitempty"`
	// Cause is why it could not be started, with ReasonStartError; else zero.
	Cause cause.Cause `json:"cause,omitzero"`
}

// EndedBy is what ended an instance that did not end by itself.
type EndedBy string

// What ends an instance that nothing was wrong with.
const (
	EndedByAgent  EndedBy = "Agent"  // an edit, a drain, a restart of all containers
	EndedByReboot EndedBy = "Reboot" // or a power cut
)

// Ending is the exit of an instance as its successor records it, with what ended it; nil: it has not ended.
func (c *Container) Ending() *Termination {
	if c.Exit == nil {
		return nil
	}
	end := *c.Exit
	switch {
	case c.Leaving() && !c.StopCause.Failed():
		end.By = EndedByAgent
	case c.EarlierBoot && end.Reason == ReasonUnknown:
		end.By = EndedByReboot
	}
	return &end
}

// Termination reasons, as kubelet and containerd's CRI plugin give them.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonOOMKilled  = "OOMKilled"
	ReasonStartError = "StartError"
	// ReasonUnknown: the exit happened while nobody could see it and the shim left no record (exit code 255).
	ReasonUnknown = "Unknown"
)

// ExitCodeStartError is the exit code of a process that could not be started, containerd's CRI plugin's.
const ExitCodeStartError = 128

// ActionKind names what an action does.
type ActionKind string

// The actions. Each is idempotent: applying it again after a crash in the middle of it completes it.
const (
	// CheckPod verifies everything that can be verified without touching what runs: images are pulled by
	// their policy, users resolved, host paths checked, the OCI specs of all containers built.
	CheckPod ActionKind = "CheckPod"
	// CreateSandbox makes the sandbox record (Action.UID) and its namespaces, and starts CNI ADD in the
	// background; StartContainer waits for it.
	CreateSandbox ActionKind = "CreateSandbox"
	// ReviveSandbox makes the cgroup and namespaces of a sandbox anew that lost them (Sandbox.Alive is false), for a pod
	// with the same sandbox hash, stores its manifest and starts the network's set-up in the background, like
	// CreateSandbox. Uid, directories, volumes on disk, logs and records of containers stay.
	ReviveSandbox ActionKind = "ReviveSandbox"
	// SetupNetwork repeats a network set-up that was cut off or failed (DEL, then ADD) and waits for it. When
	// ADD is under way in this process, it waits for that one instead.
	SetupNetwork ActionKind = "SetupNetwork"
	// RecordPod stores the new manifest on the sandbox record; nothing that runs is touched.
	RecordPod ActionKind = "RecordPod"
	// FailPod puts on the sandbox record that the pod has failed, for Action.Failure and Message. The first time counts. The
	// emptyDirs of a pod that was evicted go as soon as nothing of it runs: it comes back with new ones.
	FailPod ActionKind = "FailPod"
	// SyncVolumes brings the content of configMap, secret, downwardAPI and projected volumes that exist up to date with
	// the pod and its Refs, each as a whole. A volume for which something is missing keeps what it has.
	SyncVolumes ActionKind = "SyncVolumes"
	// EnsureImage makes the image of Action.Container present, by its pull policy. What becomes of it is told by
	// TellImageProgress.
	EnsureImage ActionKind = "EnsureImage"
	// CreateContainer makes record, snapshot, mounts, log file and task of a new instance of
	// Action.Container; its process waits to be started. Old instances are not touched. When it fails it
	// leaves nothing of the new instance behind, except with Action.OrExit: what the OCI runtime refuses to start
	// (command not found, no place for a mount, ...) is then an instance that has ended with ExitCodeStartError, and
	// the StepError has ReasonStartError.
	CreateContainer ActionKind = "CreateContainer"
	// StartContainer waits for the network and starts the instance Action.ContainerID; when that is empty,
	// the newest instance of Action.Container, which the same plan creates. When the process cannot be
	// started (command not found, ...), it returns a StepError with ReasonRunContainerError and removes the
	// instance: there is no half container; or it has ended, with Action.OrExit, as CreateContainer says. When the network is what failed, the StepError has
	// ReasonCreatePodSandboxError and the instance stays Created.
	StartContainer ActionKind = "StartContainer"
	// UpdateResources gives the running Action.ContainerID the cpu and memory of the manifest; without Container,
	// the pod's cgroup. The pod's is widened first where that is needed. A memory limit below what is in use is
	// refused with ReasonResizeError: nothing is killed for it.
	UpdateResources ActionKind = "UpdateResources"
	// MarkStopping puts on record that Action.ContainerID is going to be stopped: its grace period has begun, the
	// signal comes later. The first time counts.
	MarkStopping ActionKind = "MarkStopping"
	// RunHook runs a hook of Action.ContainerID in the background; it is the worker that does it, no Runtime. How it
	// ends is an event and found in Observed.Hooks.
	RunHook ActionKind = "RunHook"
	// RecordHealth puts on record what the probes of Action.ContainerID say (Action.Health), and since when.
	RecordHealth ActionKind = "RecordHealth"
	// MarkStarted puts on record that the postStart hook of Action.ContainerID has succeeded.
	MarkStarted ActionKind = "MarkStarted"
	// StopContainer does what MarkStopping does unless that is done, then sends the stop signal to Action.ContainerID,
	// once, and returns at once. What is on record says so before the signal is sent.
	StopContainer ActionKind = "StopContainer"
	// KillContainer sends SIGKILL to Action.ContainerID and returns at once.
	KillContainer ActionKind = "KillContainer"
	// FinishContainer puts the exit of Action.ContainerID on its labels and deletes its task.
	FinishContainer ActionKind = "FinishContainer"
	// RemoveContainer deletes all of Action.ContainerID: task, record, snapshot, mounts, FIFOs.
	RemoveContainer ActionKind = "RemoveContainer"
	// RemoveSandbox gives the sandbox up: it disappears from Observe at once; CNI DEL, unpinning and the
	// removal of its directories, volumes and logs follow in the background and are retried until done.
	// Records of containers that completed may be left: they stay in Observe, with the old SandboxID, since
	// they are what says that the container need not run again after a reboot. The next sandbox may have the
	// same UID (metadata.uid): the removal must not take what belongs to the new one. Where there is no sandbox the pod loses
	// PodState.Place.
	RemoveSandbox ActionKind = "RemoveSandbox"
)

// Action is one step of a plan: plain data, printed in logs as it is.
type Action struct {
	Kind ActionKind
	// Container is the name in the manifest, for actions about one container.
	Container string
	// ContainerID is the instance acted on; CreateContainer has none yet.
	ContainerID string
	// Reason says why, in words for the log and the event: "definition changed", "restart policy Always".
	Reason string
	// UID is the new pod's uid, for CreateSandbox.
	UID string
	// KeepFiles makes RemoveSandbox leave directories, volumes and logs of the uid to the sandbox that is created next.
	KeepFiles bool
	// Remade says of RemoveSandbox that another sandbox is made next: until then PodState.Place says so, over restarts, too.
	Remade bool
	// RestartCount, BackOff, Last and Round are what CreateContainer stores on the new instance.
	RestartCount int
	Round        int
	BackOff      time.Duration
	Last         *Termination
	// Exit is what FinishContainer stores.
	Exit *Termination
	// OrExit says of CreateContainer and StartContainer that a process which the OCI runtime refuses has ended.
	OrExit bool
	// Manifest says which pod Apply is given: the desired one, or the one recorded on the sandbox.
	Manifest Manifest
	// Timeout bounds an EnsureImage that can be done without: an image to fall back on is there. 0: none. It bounds
	// a preStop hook to what is left of the grace period.
	Timeout time.Duration
	// Cause is why MarkStopping and StopContainer are applied.
	Cause StopCause
	// Signal is what StopContainer sends, e.g. SIGUSR1; empty: the STOPSIGNAL of the image, or SIGTERM.
	Signal string
	// Failure, Message and FailureCause are those of FailPod.
	Failure      string
	Message      string
	FailureCause cause.Cause
	// Evictions is what CreateSandbox stores on the sandbox.
	Evictions int
	// Health is what RecordHealth records.
	Health Health
	// Hook and Handler say what RunHook is to do.
	Hook    HookKind
	Handler *Handler
}

// HookKind is one of the hooks that a container can have.
type HookKind string

// Hooks.
const (
	PostStartHook HookKind = "postStart"
	PreStopHook   HookKind = "preStop"
)

// Handler is a hook that is ready to run, or Err if it cannot be.
type Handler struct {
	hook.Hook
	Err error
}

// Manifest names the manifest that an action follows.
type Manifest string

// Manifests that an action can follow.
const (
	DesiredManifest Manifest = ""
	// RecordedManifest is Sandbox.Pod: what runs by it is kept alive while the desired one cannot be had.
	RecordedManifest Manifest = "recorded"
)

// String prints an action for logs and tests, e.g. `StopContainer web (definition changed)`.
func (a Action) String() string {
	s := string(a.Kind)
	if a.Container != "" {
		s += " " + a.Container
	}
	if a.Reason != "" {
		s += fmt.Sprintf(" (%s)", a.Reason)
	}
	return s
}

// Runtime observes and changes pods. Implementations: runner/ctrd (containerd) and runtimetest.Fake; both
// pass runtimetest.Contract. All methods may be called from several goroutines, but never two at once for
// the same pod, with these exceptions: EnsureImage, CheckPod and Exec take long, so for the same pod everything
// else may be called beside them (and EnsureImage and Exec several times at once). They end soon when ctx does.
// CreateContainer may be called for several containers of a pod at once, and StartContainer of others beside them.
type Runtime interface {
	// List returns the keys of all pods that have a sandbox record of ours.
	List(ctx context.Context) ([]manifests.Key, error)
	// Observe reads the state of one pod. An error means "cannot see", never "does not run".
	Observe(ctx context.Context, key manifests.Key) (PodState, error)
	// Apply executes one action. pod is the desired pod, or the recorded one if Action.Manifest says so; for
	// the stopping and removing kinds it may be nil.
	// An error is a *StepError when a waiting reason is known.
	Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a Action) error
	// Exec runs a command in a running container of the pod, with the user, environment, directory and rights
	// of its own process, and waits for it. It may be called beside everything else, several times at once.
	// Any exit code is a result; an error says that the command could not be run or was not seen to its end:
	// when its time is over it is killed and the error is ErrExecTimeout, when ctx ends it is killed and the
	// error is ctx's. The output so far comes with both.
	Exec(ctx context.Context, key manifests.Key, r ExecRequest) (ExecResult, error)
	// Watch calls notify with the key of each pod whose state may have changed (an exit, an OOM kill, a
	// finished network set-up), until ctx ends, and with the zero Key when any pod may have changed (the
	// connection to containerd was lost and found again). It blocks.
	Watch(ctx context.Context, notify func(manifests.Key)) error
}

// StepError is a failed action with the waiting reason users know from Kubernetes.
type StepError struct {
	Reason string
	Err    error
}

// Error implements error.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Waiting reasons of failed steps, spelled as kubelet spells them.
const (
	ReasonErrImagePull      = "ErrImagePull"
	ReasonImagePullBackOff  = "ImagePullBackOff"
	ReasonErrImageNeverPull = "ErrImageNeverPull"
	ReasonInvalidImageName  = "InvalidImageName"
	ReasonImageInspectError = "ImageInspectError"
	// ReasonSignatureValidationFailed: nobody who may has signed the image.
	ReasonSignatureValidationFailed = "SignatureValidationFailed"
	// ReasonImageNotAllowed is ours: the image must not be used.
	ReasonImageNotAllowed            = "ImageNotAllowed"
	ReasonCreateContainerConfigError = "CreateContainerConfigError"
	ReasonCreateContainerError       = "CreateContainerError"
	ReasonRunContainerError          = "RunContainerError"
	ReasonCreatePodSandboxError      = "CreatePodSandboxError"
	ReasonCrashLoopBackOff           = "CrashLoopBackOff"
	ReasonFailedMount                = "FailedMount"
	ReasonContainerCreating          = "ContainerCreating"
	ReasonPodInitializing            = "PodInitializing"
	ReasonRestartingAllContainers    = "RestartingAllContainers"
	ReasonPostStartHookError         = "PostStartHookError"
	// ReasonAppArmor is a kubelet's reason to turn down a pod; here its containers wait with it.
	ReasonAppArmor = "AppArmor"
	// ReasonResizeError is the reason of the condition PodResizeInProgress.
	ReasonResizeError = "Error"
)

// ReasonDefinitionChanged is the reason of actions that replace a container by another definition of it.
const ReasonDefinitionChanged = "definition changed"
