// Package runner is the vocabulary of running pods: the observed state of a pod, the actions that change it, the reasons of failures, and
// Runtime, the interface through which runner/pool reaches containerd (runner/ctrd) or a fake (runner/runtimetest).
//
// It holds data and no decisions: those are in runner/plan, runner/admit and runner/podstatus. It must not know where manifests come from
// or how a container is created.
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

// PodState is the state of one pod at one moment, as the runtime reads it from containerd's labels and task status. It is a snapshot;
// planning never changes it.
type PodState struct {
	// Sandbox is nil if the pod has no sandbox.
	Sandbox *Sandbox
	// Place is the manifest of the previous sandbox while the pod is being recreated: that sandbox has been removed and the next one does not
	// exist yet.
	Place *manifests.Pod
	// Containers holds all container records of the pod, oldest first. The last one with a given name is the current instance; the others are
	// leftovers of an update or a restart in progress.
	Containers []Container
}

// Sandbox is the pod-level record: identity, namespaces and network. There is no pause process.
type Sandbox struct {
	ID string
	// UID is metadata.uid of the pod. It changes only when the sandbox is replaced.
	UID string
	// Hash is podhash.Sandbox of the manifest that the sandbox was created for.
	Hash string
	// QOSClass is the QoS class whose cgroup contains the pod's; empty if the sandbox was created without QoS cgroups.
	QOSClass corev1.PodQOSClass
	// ResourcesHash is podhash.PodResources of the settings of the pod's cgroup; empty if unknown.
	ResourcesHash string
	// Resources are the requests and limits that the pod's cgroup was set to; nil if unknown.
	Resources *corev1.ResourceRequirements
	// Pod is the manifest, with Origin, that RecordPod or CreateSandbox stored last.
	Pod       *manifests.Pod
	CreatedAt time.Time
	// Alive reports that the namespaces exist: the sandbox was created in this boot and its pins are in place.
	Alive bool
	// Network is the progress of CNI ADD. Host-network sandboxes are always NetworkReady.
	Network NetworkState
	// IPs are the pod's addresses, IPv4 first; empty for host-network pods.
	IPs []string
	// Age is the age of the sandbox, including suspend of the machine, by a clock that cannot be set. It is known only if the recorded
	// manifest has a deadline; otherwise it is 0.
	Age time.Duration
	// Failed is the failure recorded by FailPod; nil if the pod has not failed as a whole.
	Failed *PodFailure
	// Evictions is the number of consecutive evictions before this sandbox, as passed to CreateSandbox.
	Evictions int
	// Disk is the latest measured disk usage of a pod with disk limits (LimitsDisk); nil if unknown.
	Disk *DiskUsage
	// Ephemeral are the ephemeral containers that RecordEphemeral has added, in that order. They are not part of a manifest, and are
	// removed with the sandbox.
	Ephemeral []corev1.EphemeralContainer
}

// PodFailure is the failure of a pod as a whole, as opposed to a failure of one container.
type PodFailure struct {
	// Reason is e.g. DeadlineExceeded.
	Reason string
	// Message adds details; empty if the reason is sufficient.
	Message string
	// Cause is set for reasons that have several causes.
	Cause cause.Cause
	At    time.Time
}

// ReasonDeadlineExceeded is the reason of a pod that failed because it ran longer than activeDeadlineSeconds.
const ReasonDeadlineExceeded = "DeadlineExceeded"

// NetworkState is the progress of the network setup of a sandbox.
type NetworkState string

// Network states.
const (
	// NetworkPending means that CNI ADD is in progress in this process, or never ran or was interrupted and must be repeated.
	NetworkPending NetworkState = "Pending"
	// NetworkReady means that ADD succeeded or that none is needed.
	NetworkReady NetworkState = "Ready"
)

// ContainerState is the position of a container in its life cycle:
//
//	(none) --CreateContainer--> Created --StartContainer--> Running --exit--> Exited --RemoveContainer--> (none)
type ContainerState string

// Container states.
const (
	// ContainerCreated means that record, snapshot and task exist, but the process has not been started.
	ContainerCreated ContainerState = "Created"
	// ContainerRunning means that the process runs.
	ContainerRunning ContainerState = "Running"
	// ContainerExited means that the process ended or could not be started; see Container.Exit.
	ContainerExited ContainerState = "Exited"
)

// Container is one container record.
type Container struct {
	ID   string
	Name string
	// SandboxID is the sandbox of the instance. It differs from Sandbox.ID for leftovers of a replaced sandbox.
	SandboxID string
	// Hash is podhash.Container of the definition that the instance was created from.
	Hash string
	// ResourcesHash is podhash.Resources of the settings of the cgroup; empty if unknown.
	ResourcesHash string
	// Resources are the settings of the cgroup; nil if unknown.
	Resources *corev1.ResourceRequirements
	// PodResources are the resources of the pod as a whole for which the cgroup was set; nil if unknown. Their limits replace missing ones.
	PodResources *corev1.ResourceRequirements
	Image        string
	ImageID      string
	// ImageDigest is the digest of the manifest or index of the image. VolumeImages are the digests of mounted images, by volume.
	ImageDigest  string
	VolumeImages map[string]string
	State        ContainerState
	PID          uint32
	// RestartCount, BackOff and Last are as passed to CreateContainer.
	RestartCount int
	// BackOff is the wait between the exit of this instance and the next start; see restart.go.
	BackOff   time.Duration
	Last      *Termination
	CreatedAt time.Time
	// EarlierBoot reports that the instance was created before the last reboot, which ended it if it was still running.
	EarlierBoot bool
	// StartedAt is zero until the process has been started.
	StartedAt time.Time
	// Exit is set if State is ContainerExited.
	Exit *Termination
	// Recorded reports that Exit is stored on the labels of the container and that the task is deleted (FinishContainer was applied).
	Recorded bool
	// StopSentAt is when StopContainer last sent the stop signal; zero if it never did.
	StopSentAt time.Time
	// StoppingAt is when MarkStopping was applied or StopContainer began; zero if neither did. The grace period counts from then, even if the
	// signal is sent later.
	StoppingAt time.Time
	// StopCause is why the instance was stopped; see the constants.
	StopCause StopCause
	// Round is the number of restarts of all containers of the sandbox by a rule with the action RestartAllContainers, as passed to
	// CreateContainer. Instances of an earlier round than the latest must be removed.
	Round int
	// PostStart is the state of the postStart hook, fixed when the instance is created: a hook that an edit adds applies to the next instance.
	PostStart PostStart
	// Health is the latest result of the probes, as stored by RecordHealth.
	Health Health
}

// PostStart is the progress of the postStart hook of an instance.
type PostStart string

// States of postStart hooks.
const (
	// PostStartNone means that the instance has no hook.
	PostStartNone PostStart = ""
	// PostStartPending means that the hook has not completed. Until it has, the container does not count as started.
	PostStartPending PostStart = "Pending"
	// PostStartDone means that the hook succeeded.
	PostStartDone PostStart = "Done"
)

// StopCause is why an instance was stopped. StopUnwanted, the zero value, is not a fault: if the instance is desired again, it is
// started at once. All others except StopRestartAll count as failures of the container.
type StopCause string

// Stop causes.
const (
	StopUnwanted StopCause = ""
	// StopPostStart means that the postStart hook failed.
	StopPostStart StopCause = "PostStartHookError"
	// StopRestartAll means that the exit of another container restarts all containers. It does not count as a failure.
	StopRestartAll StopCause = "RestartingAllContainers"
	// StopLivenessProbe and StopStartupProbe mean that the probe failed.
	StopLivenessProbe StopCause = "LivenessProbe"
	StopStartupProbe  StopCause = "StartupProbe"
)

// Failed reports whether the instance was stopped because of its own failure.
func (s StopCause) Failed() bool { return s != StopUnwanted && s != StopRestartAll }

// Leaving reports whether the instance is stopping or about to be stopped.
func (c *Container) Leaving() bool { return !c.StopSentAt.IsZero() || !c.StoppingAt.IsZero() }

// Termination describes the end of a container instance.
type Termination struct {
	ContainerID string    `json:"containerID"`
	ExitCode    int       `json:"exitCode"`
	Reason      string    `json:"reason"`
	Message     string    `json:"message,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	// By is what ended the instance; empty if it ended by itself or because of its own failure.
	By EndedBy `json:"by,omitempty"`
	// Stop is the failure of its own for which the agent stopped the instance; otherwise empty.
	Stop StopCause `json:"stop,omitempty"`
	// Cause is why the instance could not be started, with ReasonStartError; otherwise zero.
	Cause cause.Cause `json:"cause,omitzero"`
}

// EndedBy is what ended an instance that neither ended by itself nor failed.
type EndedBy string

// Values of EndedBy.
const (
	EndedByAgent  EndedBy = "Agent"  // an edit, a drain, a restart of all containers
	EndedByReboot EndedBy = "Reboot" // or a power cut
)

// Ending returns the exit of an instance for the record of its successor, including what ended it; nil if it has not ended.
func (c *Container) Ending() *Termination {
	if c.Exit == nil {
		return nil
	}
	end := *c.Exit
	if c.Leaving() && c.StopCause.Failed() {
		end.Stop = c.StopCause
	}
	switch {
	case c.Leaving() && !c.StopCause.Failed():
		end.By = EndedByAgent
	case c.EarlierBoot && end.Reason == ReasonUnknown:
		end.By = EndedByReboot
	}
	return &end
}

// Termination reasons, spelled as in the kubelet and containerd's CRI plug-in.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonOOMKilled  = "OOMKilled"
	ReasonStartError = "StartError"
	// ReasonUnknown means that the exit was not observed and the shim left no record (exit code 255).
	ReasonUnknown = "Unknown"
)

// ExitCodeStartError is the exit code of a process that could not be started, the same as in containerd's CRI plug-in.
const ExitCodeStartError = 128

// ActionKind is the kind of an action.
type ActionKind string

// Actions. All are idempotent: applying an action again after a crash in the middle completes it.
const (
	// CheckPod verifies all that can be verified without affecting running containers: it pulls images by their policy, resolves users, checks
	// host paths and builds the OCI specs of all containers.
	CheckPod ActionKind = "CheckPod"
	// CreateSandbox creates the sandbox record (Action.UID) and its namespaces, and starts CNI ADD in the background; StartContainer waits for
	// it.
	CreateSandbox ActionKind = "CreateSandbox"
	// ReviveSandbox recreates the cgroup and namespaces of a sandbox that lost them (Sandbox.Alive is false), for a pod with the same sandbox
	// hash. It stores the manifest and starts the network setup in the background, as CreateSandbox does. Uid, directories, volumes on disk,
	// logs and container records stay.
	ReviveSandbox ActionKind = "ReviveSandbox"
	// SetupNetwork repeats a network setup that was interrupted or failed (DEL, then ADD) and waits for it. If ADD is in progress in this
	// process, it waits for that one instead.
	SetupNetwork ActionKind = "SetupNetwork"
	// RecordPod stores the new manifest on the sandbox record; it does not affect running containers.
	RecordPod ActionKind = "RecordPod"
	// RecordEphemeral adds Action.Ephemeral to the ephemeral containers of the sandbox with the uid Action.UID. Existing ones with the same
	// name are unchanged.
	RecordEphemeral ActionKind = "RecordEphemeral"
	// FailPod records on the sandbox that the pod has failed, with Action.Failure and Message. Only the first call has an effect. The
	// emptyDirs of an evicted pod are deleted as soon as none of its containers runs, since it comes back with new ones.
	FailPod ActionKind = "FailPod"
	// SyncVolumes updates the content of existing configMap, secret, downwardAPI and projected volumes to the pod and its Refs, each volume
	// atomically. A volume whose object or key is missing keeps its content.
	SyncVolumes ActionKind = "SyncVolumes"
	// EnsureImage makes the image of Action.Container present according to its pull policy. It reports progress through ReportImageProgress.
	EnsureImage ActionKind = "EnsureImage"
	// CreateContainer creates record, snapshot, mounts, log file and task of a new instance of Action.Container; its process waits to be
	// started. Old instances are not changed. If it fails, it leaves nothing of the new instance behind. The exception is Action.OrExit: if
	// the OCI runtime refuses to start the process (command not found, mount point missing, ...), the instance stays as one that exited with
	// ExitCodeStartError, and the StepError has ReasonStartError.
	CreateContainer ActionKind = "CreateContainer"
	// StartContainer waits for the network and starts the instance Action.ContainerID; if that is empty, the newest instance of
	// Action.Container, which the same plan creates. If the process cannot be started (command not found, ...), it returns a StepError with
	// ReasonRunContainerError and removes the instance; with Action.OrExit, the instance stays as exited, as in CreateContainer. If the
	// network failed, the StepError has ReasonCreatePodSandboxError and the instance stays Created.
	StartContainer ActionKind = "StartContainer"
	// UpdateResources sets cpu and memory of the running Action.ContainerID to those of the manifest; without Container, those of the pod's
	// cgroup. It first enlarges the pod's cgroup if needed. A memory limit below the current usage is refused with ReasonResizeError, so that
	// no process is killed.
	UpdateResources ActionKind = "UpdateResources"
	// MarkStopping records that Action.ContainerID is about to be stopped: its grace period begins now, the signal follows later. Only the
	// first call has an effect.
	MarkStopping ActionKind = "MarkStopping"
	// RunHook runs a hook of Action.ContainerID in the background. The worker carries it out, not the Runtime. The result is an event and is
	// found in Observed.Hooks.
	RunHook ActionKind = "RunHook"
	// RecordHealth records the result of the probes of Action.ContainerID (Action.Health), and since when.
	RecordHealth ActionKind = "RecordHealth"
	// MarkStarted records that the postStart hook of Action.ContainerID has succeeded.
	MarkStarted ActionKind = "MarkStarted"
	// StopContainer applies MarkStopping if that was not done, then sends the stop signal to Action.ContainerID, once, and returns
	// immediately. The record is written before the signal is sent.
	StopContainer ActionKind = "StopContainer"
	// KillContainer sends SIGKILL to Action.ContainerID and returns immediately.
	KillContainer ActionKind = "KillContainer"
	// FinishContainer stores the exit of Action.ContainerID on its labels and deletes its task.
	FinishContainer ActionKind = "FinishContainer"
	// RemoveContainer deletes everything of Action.ContainerID: task, record, snapshot, mounts and FIFOs.
	RemoveContainer ActionKind = "RemoveContainer"
	// RemoveSandbox removes the sandbox: it disappears from Observe immediately. CNI DEL, unpinning and the removal of its directories,
	// volumes and logs follow in the background and are retried until they succeed.
	//
	// Records of completed containers may remain. They stay in Observe with the old SandboxID and show that the container need not run again
	// after a reboot. The next sandbox may have the same UID (metadata.uid): the removal must not delete anything that belongs to it. If the
	// pod has no sandbox, RemoveSandbox deletes PodState.Place.
	RemoveSandbox ActionKind = "RemoveSandbox"
)

// Action is one step of a plan: plain data that is logged as it is.
type Action struct {
	Kind ActionKind
	// Container is the name in the manifest, for actions on one container.
	Container string
	// ContainerID is the instance to act on; empty for CreateContainer.
	ContainerID string
	// Reason is the reason for the log and the event, for example "definition changed" or "restart policy Always".
	Reason string
	// UID is the uid of the new pod, for CreateSandbox, or of the existing one, for RecordEphemeral.
	UID string
	// Ephemeral are added by RecordEphemeral.
	Ephemeral []corev1.EphemeralContainer
	// KeepFiles makes RemoveSandbox leave directories, volumes and logs of the uid for the sandbox that is created next.
	KeepFiles bool
	// Remade makes RemoveSandbox record, across restarts, that another sandbox is created next. Until then PodState.Place is set.
	Remade bool
	// RestartCount, BackOff, Last and Round are stored by CreateContainer on the new instance.
	RestartCount int
	Round        int
	BackOff      time.Duration
	Last         *Termination
	// Exit is stored by FinishContainer.
	Exit *Termination
	// OrExit makes CreateContainer and StartContainer treat a process that the OCI runtime refuses as one that has exited.
	OrExit bool
	// Manifest selects the pod that is passed to Apply: the desired one, or the one recorded on the sandbox.
	Manifest Manifest
	// Timeout limits an EnsureImage that may fail because an existing image can be used instead, and limits a preStop hook to the remaining
	// grace period. 0 means no limit.
	Timeout time.Duration
	// Cause is the reason of MarkStopping and StopContainer.
	Cause StopCause
	// Signal is sent by StopContainer, for example SIGUSR1; empty means the STOPSIGNAL of the image, or SIGTERM.
	Signal string
	// Failure, Message and FailureCause are stored by FailPod.
	Failure      string
	Message      string
	FailureCause cause.Cause
	// Evictions is stored by CreateSandbox on the sandbox.
	Evictions int
	// Health is stored by RecordHealth.
	Health Health
	// Hook and Handler are what RunHook runs.
	Hook    HookKind
	Handler *Handler
}

// HookKind is the kind of a container hook.
type HookKind string

// Hooks.
const (
	PostStartHook HookKind = "postStart"
	PreStopHook   HookKind = "preStop"
)

// Handler is a hook that is ready to run; Err is set if it cannot run.
type Handler struct {
	hook.Hook
	Err error
}

// Manifest selects the manifest that an action follows.
type Manifest string

// Values of Manifest.
const (
	DesiredManifest Manifest = ""
	// RecordedManifest is Sandbox.Pod. It keeps running containers alive while the desired manifest cannot be applied.
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

// Runtime observes and changes pods. Implementations are runner/ctrd (containerd) and runtimetest.Fake; both pass runtimetest.Contract.
//
// All methods may be called from several goroutines, but never concurrently for the same pod, with these exceptions: EnsureImage, CheckPod
// and Exec take long, so all other methods may be called for the same pod while they run, as may further EnsureImage and Exec calls. They
// return soon after ctx ends. CreateContainer may be called for several containers of a pod concurrently, and StartContainer for other
// containers meanwhile.
type Runtime interface {
	// List returns the keys of all pods with a sandbox record of this agent.
	List(ctx context.Context) ([]manifests.Key, error)
	// Observe reads the state of one pod. An error means that the state is unknown, never that the pod does not run.
	Observe(ctx context.Context, key manifests.Key) (PodState, error)
	// Apply executes one action. pod is the desired pod, or the recorded one if Action.Manifest selects it; for stopping and removing kinds it
	// may be nil. The error is a *StepError if a waiting reason is known.
	Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a Action) error
	// Exec runs a command in a running container of the pod, with the user, environment, directory and privileges of the container's process,
	// and waits for it. It may be called concurrently with all other methods and with itself.
	//
	// Any exit code is a result; an error means that the command could not be run or did not end in time. On timeout the command is killed and
	// the error is ErrExecTimeout; if ctx ends, it is killed and the error is that of ctx. In both cases the result contains the output so
	// far.
	Exec(ctx context.Context, key manifests.Key, r ExecRequest) (ExecResult, error)
	// Watch calls notify with the key of each pod whose state may have changed (an exit, an OOM kill, a completed network setup), and with the
	// zero Key if any pod may have changed (after the connection to containerd was lost and restored). It blocks until ctx ends.
	Watch(ctx context.Context, notify func(manifests.Key)) error
}

// StepError is a failed action with the waiting reason that users know from Kubernetes.
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
	// ReasonSignatureValidationFailed means that the image has no signature of an allowed signer.
	ReasonSignatureValidationFailed = "SignatureValidationFailed"
	// ReasonImageNotAllowed is specific to monopod: the policy forbids the image.
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
	// ReasonAppArmor is the reason with which the kubelet rejects a pod; monopod keeps its containers waiting with it.
	ReasonAppArmor = "AppArmor"
	// ReasonResizeError is the reason of the condition PodResizeInProgress.
	ReasonResizeError = "Error"
)

// ReasonDefinitionChanged is the reason of actions that replace a container because its definition changed.
const ReasonDefinitionChanged = "definition changed"
