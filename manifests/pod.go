// Package manifests is the vocabulary of desired state: Pods and other objects with their origin, errors with their position, and pure
// questions about them (containers, requests, QoS class, priority, references). manifests/decode creates them from bytes.
//
// It is pure: no clock, no disk, no network, no goroutines. It must not decode or validate, nor know what will run the pods.
package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/spaces"
)

// Key identifies a pod on this machine: one namespace/name pair runs at most once.
type Key struct {
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Less orders keys by namespace, then name.
func (k Key) Less(o Key) bool { return k.Compare(o) < 0 }

// Compare orders keys as Less does.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Origin is where a pod was written.
type Origin struct {
	// Source is the name of the source that read it: "file", "http", or one of the configuration.
	Source string `json:"source"`
	// File is the path or URL of the document.
	File string `json:"file"`
	// Line is the 1-based line at which the document starts; 0 when unknown.
	Line int `json:"line,omitempty"`
}

// SourceAPIServer is the name of the source of pods that an API server has bound to this node.
const SourceAPIServer = spaces.APIServer

// Bound reports whether an API server has bound the pod to this node: its controllers replace it when it has ended.
func (o Origin) Bound() bool { return o.Source == SourceAPIServer }

// Pod is one accepted manifest: defaulted and valid, with every field enforced or harmless. It is immutable: make a DeepCopy of Object to
// change it.
type Pod struct {
	Object *corev1.Pod
	Origin Origin
	// Owner is the controller that a dump names, if any.
	Owner Owner
	// Refs is the content of the objects that the pod refers to, as far as it is known; nil before WithRefs. It is in
	// no hash and must never be stored: it can hold Secrets.
	Refs *Refs
	// Images are digests (sha256:...) of the images to run in place of what the tags of Object stand for now: by container,
	// and by ImageVolume. What is not in it runs as written. It is in no hash, because Object is the same.
	Images map[string]string
	// Given is the server-set metadata of a pod applied through the Kubernetes API; nil if none. It is not part of any hash.
	Given *ServerMetadata
	// Rejected is why this machine never starts the pod, although its manifest is valid; nil if it may start.
	Rejected *Rejection
}

// Rejection is why a node permanently rejects a pod, with the reason and the message of a kubelet.
type Rejection struct{ Reason, Message string }

// Deleted reports whether the pod has been deleted, and only finalizers keep its object.
func (p *Pod) Deleted() bool { return p.Given != nil && p.Given.DeletionTimestamp != nil }

// Key returns the pod's namespace and name.
func (p *Pod) Key() Key { return Key{Namespace: p.Object.Namespace, Name: p.Object.Name} }

// Error is one problem of one document. It prints like a compiler message:
// "file:line:column: pod ns/name: field: message; hint".
type Error struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Kind is empty for a Pod.
	Kind string `json:"kind,omitempty"`
	// Pod is "namespace/name", empty when the document could not be read that far.
	Pod string `json:"pod,omitempty"`
	// Field is the path as the API server prints it, e.g. spec.containers[0].image.
	Field string `json:"field,omitempty"`
	Msg   string `json:"message"`
	// Hint is advice on how to fix it; may be empty.
	Hint string `json:"hint,omitempty"`
	// Type is the error type of Kubernetes validation, empty for other problems.
	Type field.ErrorType `json:"-"`
	// Kindless is set if the document has no kind: Pod has its name, but it need not be a Pod.
	Kindless bool `json:"-"`
}

// ID returns the identity of the object with the problem; ok is false if the document does not reveal it.
func (e *Error) ID() (id ObjectID, ok bool) {
	id.Kind = cmp.Or(e.Kind, "Pod")
	namespace, name, namespaced := strings.Cut(e.Pod, "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	id.Namespace, id.Name = namespace, name
	return id, name != "" && !e.Kindless
}

// Where is the place of the problem, as file:line:column, as far as it is known.
func (e *Error) Where() string {
	switch {
	case e.Line == 0:
		return e.File
	case e.Column == 0:
		return fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Where() + ": ")
	if e.Pod != "" {
		fmt.Fprintf(&b, "%s %s: ", strings.ToLower(cmp.Or(e.Kind, "pod")), e.Pod)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Msg)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Errors returns the problems that Load joined into one error. An error that holds none yields nil.
func Errors(err error) []*Error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Error
		for _, e := range joined.Unwrap() {
			all = append(all, Errors(e)...)
		}
		return all
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return []*Error{e}
	}
	return nil
}

// Owner is the controller that an object of a dump names in its ownerReferences. The zero Owner is none.
//
// `kubectl get all -o yaml` writes a Deployment, its ReplicaSets and their pods. To run all of them would be to run each pod twice, so
// that of these only the Deployment counts. An object whose controller is not in the same source counts for itself.
type Owner struct {
	Kind, Name string
	UID        types.UID
}

// AnnotationRestarted on a pod replaces its containers whenever its value changes; `monopod restart` sets it.
const AnnotationRestarted = "monopod.dev/restarted-at"
