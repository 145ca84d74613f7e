// Package storage defines what the Kubernetes API needs from the daemon: State provides objects to read, Writer stores the writes of
// clients.
//
// It contains no logic, only interfaces and their data. Package kubetest has an in-memory implementation, and a contract test for others.
//
// Goroutines: none.
package storage

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/kubeapi/kinds"
)

// AnnotationOrigin is an annotation that State gives to the objects of files and URLs: where they are defined, as FILE:LINE or URL. Applied
// objects never have it.
const AnnotationOrigin = "monopod.dev/origin"

// State has all objects.
type State interface {
	// Objects returns all objects of the kinds that are stored or watched, as a consistent snapshot. They are shared and must not be
	// modified. An unchanged object is the same pointer as before, where that is cheap. Kinds in unseen currently cannot be read
	// completely: a missing object of such a kind is not necessarily gone.
	Objects(ctx context.Context) (objects map[*kinds.Kind][]kinds.Object, unseen map[*kinds.Kind]error)
	// Computed returns the objects of a kind that is computed only on request, such as metrics and images; ok is false for other kinds.
	// Objects of watched kinds need not be the same pointers as before.
	Computed(ctx context.Context, kind *kinds.Kind) (objects []kinds.Object, ok bool, err error)
	// Subscribe returns a channel that gets a value after each change, and a function that ends the subscription.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Ref names an object.
type Ref struct {
	Kind            *kinds.Kind
	Namespace, Name string
}

// Definition is where an object is defined.
type Definition struct {
	// Applied reports whether this API or `monopod apply` stored it, so that this API can change it.
	Applied bool
	// Place is where else it is defined, as FILE:LINE, URL, or what makes it; empty: nowhere else. An object may be both
	// applied and defined elsewhere: what is elsewhere has precedence then.
	Place string
	// Derived reports that Place makes the object of something else: a workload its pods, ReplicaSets and Jobs, monopod the ConfigMap
	// kube-root-ca.crt. It goes with what it is made of, and nothing about it is stored.
	Derived bool
	// Deletable reports that clients may delete a derived object. Another one with another uid takes its place, unless it is not needed again,
	// such as a run of a CronJob.
	Deletable bool
}

// Change is the result of a write. It is stored atomically.
type Change struct {
	// Put are complete objects, with defaults and metadata, managed fields included. Status is not stored, except for readiness-gate
	// conditions.
	Put []kinds.Object
	// Remove are objects that are removed at once, or, pods, with a grace period.
	Remove []Removal
	// Ephemeral adds ephemeral containers to a running pod; nil adds none. They are not part of the pod's definition, and such a change
	// contains nothing else.
	Ephemeral *Ephemeral
}

// Ephemeral adds ephemeral containers to a pod.
type Ephemeral struct {
	// Pod is the desired pod, with defaults, including its existing ephemeral containers.
	Pod *corev1.Pod
	// Added are the names of the new containers.
	Added []string
}

// Removal removes an object.
type Removal struct {
	Ref
	UID types.UID
	// GraceSeconds is the grace period of a pod; nil means the one in its manifest.
	GraceSeconds *int64
}

// Writer stores the writes of clients. A *apierrors.StatusError is returned to the client unchanged.
type Writer interface {
	// Definition returns where an object is defined. It is also called from decide, so it must not wait for writes.
	Definition(Ref) Definition
	// Write calls decide while no other write runs, and stores the returned change, unless dryRun is set. It returns once State shows the
	// change, or after 2 seconds; the change is stored in either case. Warnings are for the client.
	//
	// The objects are validated first, like those of `monopod apply`: the error is 422 with causes for invalid objects, 403 for objects
	// defined elsewhere.
	Write(ctx context.Context, dryRun bool, decide func() (Change, error)) (warnings []string, err error)
}
