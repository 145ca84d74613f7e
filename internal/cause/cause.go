// Package cause names what can be in the way of a pod, as values: Cause is one such fact and Error carries it with an error.
//
// It owns the kinds of causes, which programs read, and how causes travel with errors; it must not classify errors, decide
// anything, or print sentences. A cause is made by the package that knows the fact and printed by the package that shows it.
package cause

import "errors"

// Cause is a fact that keeps a pod, or an input, from being as it should be. The zero Cause is none. Which fields are set depends
// on Kind, see there. Causes can be compared, and stored as JSON.
type Cause struct {
	Kind Kind `json:"kind,omitempty"`
	// Fault distinguishes causes of one kind where what to do differs; often empty.
	Fault Fault `json:"fault,omitempty"`
	// Container is the container that it is about; empty: the pod.
	Container string `json:"container,omitempty"`
	// Pod is namespace/name of another pod that is in the way.
	Pod string `json:"pod,omitempty"`
	// Object is what the pod refers to: a ConfigMap, Secret or claim, or a profile of this machine.
	Object Object `json:"object,omitzero"`
	// Key is the missing key of Object.
	Key string `json:"key,omitempty"`
	// Path is a file or directory of this machine.
	Path string `json:"path,omitempty"`
	// Expected is what Path is not, for example "a directory".
	Expected string `json:"expected,omitempty"`
	// Program is what a container runs.
	Program string `json:"program,omitempty"`
	// Image is the reference as it is written, Registry the server that it names.
	Image    string `json:"image,omitempty"`
	Registry string `json:"registry,omitempty"`
	// Server is the address that was dialed, or the name that was looked up.
	Server string `json:"server,omitempty"`
	// Answer is what a server said, as in "503 Service Unavailable".
	Answer string `json:"answer,omitempty"`
	// Resource is what the machine is short of, as in "memory" or "cpu".
	Resource string `json:"resource,omitempty"`
	// UID is that of another pod.
	UID string `json:"uid,omitempty"`
	// Detail is the original message, to be shown as it is and never to be searched.
	Detail string `json:"detail,omitempty"`
}

// Object names what a pod refers to.
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
	// Refused: nothing accepts connections there.
	Refused Fault = "Refused"
	// TimedOut: there was no answer in time.
	TimedOut Fault = "TimedOut"
	// NotFound: the server has no such path; of a profile, that it does not exist.
	NotFound Fault = "NotFound"
	// NoProgram: the program of a probe, or what it asks for, does not exist.
	NoProgram Fault = "NoProgram"
	// Denied: the server wants another login.
	Denied Fault = "Denied"
	// Redirected: the server refers to another host.
	Redirected Fault = "Redirected"
	// Failing: the server reports an error of its own (5xx).
	Failing Fault = "Failing"
	// Lookup: the name of the server cannot be resolved.
	Lookup Fault = "Lookup"
	// PlainHTTP: the server does not speak TLS.
	PlainHTTP Fault = "PlainHTTP"
	// CertificateExpired: it has expired, or is not valid yet.
	CertificateExpired Fault = "CertificateExpired"
	// CertificateName: the certificate is for another name.
	CertificateName Fault = "CertificateName"
	// CertificateAuthority: nothing here trusts the issuer of the certificate.
	CertificateAuthority Fault = "CertificateAuthority"
	// CertificateRefused: the server does not accept the certificate of this machine.
	CertificateRefused Fault = "CertificateRefused"
	// File: a file of this machine, Path, is what is wrong.
	File Fault = "File"
)

// Faults of other causes.
const (
	// Reserved, of NoSpace: the disk is not full, but what is free must stay free.
	Reserved Fault = "Reserved"
	// Cordoned, of Drained: new pods are not started, and what runs goes on.
	Cordoned Fault = "Cordoned"
	// HandedOver, of ShuttingDown: another agent takes over.
	HandedOver Fault = "HandedOver"
	// NotExecutable, of CommandNotFound: the program exists but cannot be executed.
	NotExecutable Fault = "NotExecutable"
	// Unmountable, of ClaimUnbound: the volume of the claim is of a kind that cannot be mounted here.
	Unmountable Fault = "Unmountable"
	// VolumeLimit, PodLimit and ContainerLimit, of Evicted: which limit of the pod was exceeded.
	VolumeLimit    Fault = "VolumeLimit"
	PodLimit       Fault = "PodLimit"
	ContainerLimit Fault = "ContainerLimit"
)

// Error is an error whose cause is known.
type Error struct {
	Cause Cause
	Err   error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error as it was.
func (e *Error) Unwrap() error { return e.Err }

// Wrap adds a cause to an error; nil stays nil.
func Wrap(err error, c Cause) error {
	if err == nil {
		return nil
	}
	return &Error{Cause: c, Err: err}
}

// Of returns the cause of an error: the outermost, as whoever wraps an error knows more. The zero Cause: it is not known.
func Of(err error) Cause {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Cause
	}
	return Cause{}
}
