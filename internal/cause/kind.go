package cause

// Kind names a cause for programs. The names are stable. docs/why.md says what each means.
type Kind string

// Kinds of an agent, a runtime or an input that is in the way.
const (
	DaemonDown  Kind = "DaemonDown"
	RuntimeDown Kind = "RuntimeDown"

	InputRefused Kind = "InputRefused"
	// InputUnreachable has a Fault, and with File a Path.
	InputUnreachable Kind = "InputUnreachable"
	InputConflict    Kind = "InputConflict"
	UnknownName      Kind = "UnknownName"
	NotSupported     Kind = "NotSupported"
)

// Kinds about images. All have Image and Registry, and Answer if the registry gave one.
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
	// ImagePull is any other error of a pull.
	ImagePull     Kind = "ImagePull"
	RegistryError Kind = "RegistryError"
	// RegistryUnknown has the name that was looked up as Server, RegistryUnreachable the address that was dialed, if it is known.
	RegistryUnknown     Kind = "RegistryUnknown"
	RegistryUnreachable Kind = "RegistryUnreachable"
	RegistryCertificate Kind = "RegistryCertificate"
	RegistryNotTLS      Kind = "RegistryNotTLS"
	// NoSpace has the Fault Reserved when the disk is not full yet. It may be about something else than an image: then Image is empty.
	NoSpace Kind = "NoSpace"
)

// Kinds of a running pod with something that does not work.
const (
	LogsDropped    Kind = "LogsDropped"
	NotMirrored    Kind = "NotMirrored"
	NetworkDamaged Kind = "NetworkDamaged"
)

// Kinds about what a pod refers to. The missing ones have Object, and MissingKey has Key.
const (
	MissingConfigMap Kind = "MissingConfigMap"
	MissingSecret    Kind = "MissingSecret"
	MissingKey       Kind = "MissingKey"
	MissingClaim     Kind = "MissingClaim"
	// ClaimUnbound may have the Fault Unmountable.
	ClaimUnbound Kind = "ClaimUnbound"
	// HostPath has Path, and as Expected what that is not.
	HostPath Kind = "HostPath"
	// Mount is any other error of a volume.
	Mount Kind = "Mount"
)

// Kinds about networks and identities.
const (
	// HostPortPod has the Pod that holds the port.
	HostPortPod     Kind = "HostPortPod"
	HostPortProcess Kind = "HostPortProcess"
	// UIDConflict has the UID, and the Pod whose it is.
	UIDConflict Kind = "UIDConflict"
	PodCIDR     Kind = "PodCIDR"
	// CNIPlugin has the plug-in as Program.
	CNIPlugin Kind = "CNIPlugin"
	// Network is any other error of a network.
	Network Kind = "Network"
)

// Kinds about making and starting containers.
const (
	// CommandNotFound has Program, and may have the Fault NotExecutable.
	CommandNotFound Kind = "CommandNotFound"
	NonRoot         Kind = "NonRoot"
	Config          Kind = "Config"
	// ProfileUnusable has the profile as Object, and the Fault NotFound if it is missing.
	ProfileUnusable Kind = "ProfileUnusable"
	// Start is any other error of making or starting.
	Start  Kind = "Start"
	Hook   Kind = "Hook"
	Resize Kind = "Resize"
)

// Kinds about containers that run or have run.
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

// Kinds about the machine and its other pods.
const (
	Held Kind = "Held"
	// Drained may have the Fault Cordoned, ShuttingDown the Fault HandedOver.
	Drained      Kind = "Drained"
	ShuttingDown Kind = "ShuttingDown"
	RolledBack   Kind = "RolledBack"
	Updating     Kind = "Updating"
	TooManyPods  Kind = "TooManyPods"
	// OutOfResource has the Resource that is requested.
	OutOfResource Kind = "OutOfResource"
	NodeMismatch  Kind = "NodeMismatch"
	UnderPressure Kind = "UnderPressure"
	// MadeRoom has the Pod that needs the room.
	MadeRoom Kind = "MadeRoom"
	// Evicted has the Resource that the machine is short of, or as Fault the limit that the pod exceeded.
	Evicted   Kind = "Evicted"
	Deadline  Kind = "DeadlineExceeded"
	PodFailed Kind = "PodFailed"
	Removing  Kind = "Removing"
	Underway  Kind = "Underway"
	Stalled   Kind = "Stalled"
	Kept      Kind = "Kept"
	Other     Kind = "Other"
)
