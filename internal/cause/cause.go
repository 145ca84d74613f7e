// Package cause defines what is wrong with a pod or an input, as values: Cause is one such fact, Error attaches it to an error.
//
// It owns the kinds of causes, which are an interface for programs, and how causes travel with errors; it must not classify errors, decide
// anything, or print sentences. The package that knows the fact creates the cause, and the package that shows it prints the text.
package cause

import "errors"

// Cause is one thing that is wrong with a pod or an input. The zero Cause means none. Kind determines which fields are set.
// Causes are comparable and can be stored as JSON.
type Cause struct {
	Kind Kind `json:"kind,omitempty"`
	// Fault distinguishes causes of one kind that need different fixes; often empty.
	Fault Fault `json:"fault,omitempty"`
	// Container is the container concerned; empty means the pod.
	Container string `json:"container,omitempty"`
	// Pod is namespace/name of another pod that is part of the cause.
	Pod string `json:"pod,omitempty"`
	// Object is the object that the pod refers to: a ConfigMap, Secret or claim, or a profile of this machine.
	Object Object `json:"object,omitzero"`
	// Owner is the source of Object, Reader the source of the pod.
	Owner  string `json:"owner,omitempty"`
	Reader string `json:"reader,omitempty"`
	// Key is the missing key of Object.
	Key string `json:"key,omitempty"`
	// Path is a file or directory of this machine.
	Path string `json:"path,omitempty"`
	// Expected is what Path should be and is not, for example "a directory".
	Expected string `json:"expected,omitempty"`
	// Program is the program that the container runs.
	Program string `json:"program,omitempty"`
	// Volume is the volume whose content is Image; empty: it is the image of the container.
	Volume string `json:"volume,omitempty"`
	// Image is the reference as written, Registry the server in it.
	Image    string `json:"image,omitempty"`
	Registry string `json:"registry,omitempty"`
	// Mirror is a mirror of Registry that was asked first, and whose content could not be used.
	Mirror string `json:"mirror,omitempty"`
	// Server is the dialed address, or the host name that was resolved.
	Server string `json:"server,omitempty"`
	// Answer is the answer of a server, for example "503 Service Unavailable".
	Answer string `json:"answer,omitempty"`
	// Resource is the resource that the machine lacks, for example "memory" or "cpu".
	Resource string `json:"resource,omitempty"`
	// UID is the uid of another pod.
	UID string `json:"uid,omitempty"`
	// Detail is the original message, for display only; programs must not parse it.
	Detail string `json:"detail,omitempty"`
}

// Object identifies an object that a pod refers to.
type Object struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Kinds of objects.
const (
	ConfigMap = "ConfigMap"
	Secret    = "Secret"
	Claim     = "PersistentVolumeClaim"
	// Seccomp and AppArmor are kinds of profiles.
	Seccomp  = "seccomp"
	AppArmor = "apparmor"
)

// Fault distinguishes causes of one kind.
type Fault string

// Faults of servers, of probes and of sources.
const (
	// Refused means that the connection was refused.
	Refused Fault = "Refused"
	// TimedOut means that no answer came in time.
	TimedOut Fault = "TimedOut"
	// NotFound means that the server does not have the path, or that a profile does not exist.
	NotFound Fault = "NotFound"
	// NoProgram means that the program of a probe, or a file that it needs, does not exist.
	NoProgram Fault = "NoProgram"
	// Denied means that the server rejected the credentials.
	Denied Fault = "Denied"
	// Redirected means that the server redirects to another host.
	Redirected Fault = "Redirected"
	// Failing means that the server reports an internal error (5xx).
	Failing Fault = "Failing"
	// Lookup means that the host name cannot be resolved.
	Lookup Fault = "Lookup"
	// Resolver means that the DNS server of this machine does not answer, or reports an error.
	Resolver Fault = "Resolver"
	// Proxy means that the proxy of this machine, Server, is meant instead of the registry.
	Proxy Fault = "Proxy"
	// PlainHTTP means that the server does not speak TLS.
	PlainHTTP Fault = "PlainHTTP"
	// CertificateExpired means that the certificate has expired or is not valid yet.
	CertificateExpired Fault = "CertificateExpired"
	// CertificateName means that the certificate is for another name.
	CertificateName Fault = "CertificateName"
	// CertificateAuthority means that the issuer of the certificate is not trusted.
	CertificateAuthority Fault = "CertificateAuthority"
	// CertificateRefused means that the server rejects the client certificate of this machine.
	CertificateRefused Fault = "CertificateRefused"
	// File means that a file of this machine, Path, is faulty.
	File Fault = "File"
)

// Faults of other causes.
const (
	// Reserved, of NoSpace, means that the disk is not full, but the remaining space is reserved.
	Reserved Fault = "Reserved"
	// Cordoned, of Drained, means that new pods are not started, while existing ones keep running.
	Cordoned Fault = "Cordoned"
	// TooLarge, of OutOfResource, means that the request exceeds what the machine has for all pods together.
	TooLarge Fault = "TooLarge"
	// LabelsLost, of NodeMismatch, means that the file with the labels of the node was damaged.
	LabelsLost Fault = "LabelsLost"
	// HandedOver, of ShuttingDown, means that another agent takes over.
	HandedOver Fault = "HandedOver"
	// NotExecutable, of CommandNotFound, means that the program exists but cannot be executed.
	NotExecutable Fault = "NotExecutable"
	// Unmountable, of ClaimUnbound, means that the volume of the claim has a type that cannot be mounted here.
	Unmountable Fault = "Unmountable"
	// Owned, of ClaimUnbound, means that the storage belongs to the source Owner, and that Reader does not get it. It may have a Path.
	Owned Fault = "Owned"
	// NoRoom, of Mount, means that the content of the objects of all pods would take too much memory.
	NoRoom Fault = "NoRoom"
	// BridgeName, of Network, means that the name of the bridge belongs to something else.
	BridgeName Fault = "BridgeName"
	// UserNamespace, of Sandbox, means that this machine or its OCI runtime has no user namespace for the pod.
	UserNamespace Fault = "UserNamespace"
	// Handler, of Sandbox, means that the RuntimeClass of the pod or the OCI runtime of its handler is missing.
	Handler Fault = "Handler"
	// Sysctl, of Sandbox, means that a sysctl of the pod cannot be set.
	Sysctl Fault = "Sysctl"
	// VolumeLimit, PodLimit and ContainerLimit, of Evicted, are the limit that was exceeded.
	VolumeLimit    Fault = "VolumeLimit"
	PodLimit       Fault = "PodLimit"
	ContainerLimit Fault = "ContainerLimit"
)

// Error is an error with a known cause.
type Error struct {
	Cause Cause
	Err   error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the original error.
func (e *Error) Unwrap() error { return e.Err }

// Wrap attaches a cause to an error; nil stays nil.
func Wrap(err error, c Cause) error {
	if err == nil {
		return nil
	}
	return &Error{Cause: c, Err: err}
}

// Of returns the cause of an error, or the zero Cause if it is unknown. If there are several, it returns the outermost, because the
// wrapping code knows more.
func Of(err error) Cause {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Cause
	}
	return Cause{}
}
