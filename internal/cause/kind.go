package cause

// Kind is the name of a cause for programs. The names are stable. docs/why.md describes each.
type Kind string

// Kinds of problems with the agent, the runtime or an input.
const (
	DaemonDown  Kind = "DaemonDown"
	RuntimeDown Kind = "RuntimeDown"

	InputRefused Kind = "InputRefused"
	// InputUnreachable has a Fault; with File, also a Path.
	InputUnreachable Kind = "InputUnreachable"
	InputConflict    Kind = "InputConflict"
	UnknownName      Kind = "UnknownName"
	NotSupported     Kind = "NotSupported"
)

// Kinds of image problems. All have Image and Registry, and Answer if the registry gave one.
const (
	ImageNotFound     Kind = "ImageNotFound"
	ImageUnauthorized Kind = "ImageUnauthorized"
	ImageForbidden    Kind = "ImageForbidden"
	ImageRateLimited  Kind = "ImageRateLimited"
	ImagePlatform     Kind = "ImagePlatform"
	ImageName         Kind = "ImageName"
	ImageNeverPull    Kind = "ImageNeverPull"
	ImageNotAllowed   Kind = "ImageNotAllowed"
	ImageUnsigned     Kind = "ImageUnsigned"
	ImageStalled      Kind = "ImageStalled"
	ImageBroken       Kind = "ImageBroken"
	// ImageArtifact means that it is no image, but an OCI artifact.
	ImageArtifact Kind = "ImageArtifact"
	// ImagePull is any other error of a pull.
	ImagePull     Kind = "ImagePull"
	RegistryError Kind = "RegistryError"
	// RegistryUnknown has the host name as Server, RegistryUnreachable the dialed address if known. Both may have the Fault Proxy,
	// RegistryUnknown also Resolver.
	RegistryUnknown     Kind = "RegistryUnknown"
	RegistryUnreachable Kind = "RegistryUnreachable"
	RegistryCertificate Kind = "RegistryCertificate"
	RegistryNotTLS      Kind = "RegistryNotTLS"
	// NoSpace has the Fault Reserved if the disk is not full yet. Image is empty if it does not concern an image.
	NoSpace Kind = "NoSpace"
)

// Kinds of problems of running pods.
const (
	LogsDropped    Kind = "LogsDropped"
	NotMirrored    Kind = "NotMirrored"
	NetworkDamaged Kind = "NetworkDamaged"
)

// Kinds of problems with referenced objects. Those about missing ones have Object, and MissingKey also has Key.
const (
	MissingConfigMap Kind = "MissingConfigMap"
	MissingSecret    Kind = "MissingSecret"
	MissingKey       Kind = "MissingKey"
	MissingClaim     Kind = "MissingClaim"
	// NotShared has the Object that exists in the source Owner, and the source Reader whose pods must not see it.
	NotShared Kind = "NotShared"
	// ClaimUnbound may have the Fault Unmountable or Owned.
	ClaimUnbound Kind = "ClaimUnbound"
	// HostPath has Path, and as Expected the type that Path does not have.
	HostPath Kind = "HostPath"
	// Mount is any other error of a volume.
	Mount Kind = "Mount"
)

// Kinds of network and identity problems.
const (
	// HostPortPod has as Pod the pod that holds the port.
	HostPortPod     Kind = "HostPortPod"
	HostPortProcess Kind = "HostPortProcess"
	// UIDConflict has the UID, and as Pod the pod that owns it.
	UIDConflict Kind = "UIDConflict"
	PodCIDR     Kind = "PodCIDR"
	// CNIPlugin has the plug-in as Program.
	CNIPlugin Kind = "CNIPlugin"
	// Network is any other error of a network.
	Network Kind = "Network"
)

// Sandbox is any other error while the sandbox of a pod is created. It may have the Fault UserNamespace, Handler or Sysctl.
const Sandbox Kind = "Sandbox"

// Kinds of problems while creating and starting containers.
const (
	// CommandNotFound has Program, and may have the Fault NotExecutable.
	CommandNotFound Kind = "CommandNotFound"
	NonRoot         Kind = "NonRoot"
	Config          Kind = "Config"
	// ProfileUnusable has the profile as Object, and the Fault NotFound if it is missing.
	ProfileUnusable Kind = "ProfileUnusable"
	// Start is any other error while creating or starting.
	Start  Kind = "Start"
	Hook   Kind = "Hook"
	Resize Kind = "Resize"
)

// Kinds of problems of containers that run or have run.
const (
	Exited      Kind = "Exited"
	Signaled    Kind = "Signaled"
	OutOfMemory Kind = "OutOfMemory"
	Restarted   Kind = "Restarted"
	// ProbeFailed may have a Fault.
	ProbeFailed   Kind = "ProbeFailed"
	ProbePending  Kind = "ProbePending"
	Gate          Kind = "ReadinessGate"
	InitContainer Kind = "InitContainer"
)

// Kinds of problems with the machine and its other pods.
const (
	Held Kind = "Held"
	// Drained may have the Fault Cordoned, ShuttingDown the Fault HandedOver.
	Drained      Kind = "Drained"
	ShuttingDown Kind = "ShuttingDown"
	RolledBack   Kind = "RolledBack"
	Updating     Kind = "Updating"
	TooManyPods  Kind = "TooManyPods"
	// OutOfResource has the requested Resource, and may have the Fault TooLarge.
	OutOfResource Kind = "OutOfResource"
	// NodeMismatch may have the Fault LabelsLost.
	NodeMismatch  Kind = "NodeMismatch"
	UnderPressure Kind = "UnderPressure"
	// Preempted has as Pod the pod that takes the place.
	Preempted Kind = "Preempted"
	// Evicted has the Resource that the machine lacks, or as Fault the limit that the pod exceeded.
	Evicted    Kind = "Evicted"
	Deadline   Kind = "DeadlineExceeded"
	PodFailed  Kind = "PodFailed"
	Removing   Kind = "Removing"
	InProgress Kind = "InProgress"
	Stalled    Kind = "Stalled"
	Kept       Kind = "Kept"
	Other      Kind = "Other"
)
