package manifests

import (
	"log/slog"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/spaces"
)

// Content is everything that one input holds.
type Content struct {
	Pods []*Pod
	// Objects are what pods can refer to: ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim, StorageClass,
	// RuntimeClass, PriorityClass and Service documents.
	Objects []*Object
	// Workloads are Deployment, DaemonSet, ReplicaSet, ReplicationController, StatefulSet, Job and CronJob documents.
	Workloads []*Object
	// Notes are about fields of accepted documents that have no effect although they look as if they had one, each with its place.
	Notes []*Error
	// LeftOut are valid pods and workloads that do not run: hooks of Helm. Notes has a line about each.
	LeftOut []ObjectID
	// Ignored has a line about the documents that are valid Kubernetes but mean nothing here.
	Ignored []string
	// Missed is set if one of those would change what pods do in a cluster (see kinds.Matters), or a key is not what was written.
	Missed bool
}

// Remarks returns Notes and Ignored, one line each.
func (c *Content) Remarks() []string {
	lines := make([]string, 0, len(c.Notes)+len(c.Ignored))
	for _, n := range c.Notes {
		lines = append(lines, n.Error())
	}
	return append(lines, c.Ignored...)
}

// Object is an accepted document that is no Pod: defaulted and valid. It is immutable, and never printed with its
// content, which may be a Secret.
type Object struct {
	// Object is a pointer to the type of the API: *corev1.ConfigMap, *appsv1.Deployment and so on. A Secret has all
	// its values in Data, and a ReplicationController is an *appsv1.ReplicaSet.
	Object metav1.Object
	Kind   string
	Origin Origin
	// Owner is the controller that a dump names, if any.
	Owner Owner
	// Given is the server-set metadata of an object applied through the Kubernetes API; nil if none.
	Given *ServerMetadata
}

// ObjectID names an object on this machine. The namespace of cluster-wide kinds is empty.
type ObjectID struct {
	Kind, Namespace, Name string
}

// String returns "Kind namespace/name", or "Kind name" for cluster-wide kinds.
func (id ObjectID) String() string {
	if id.Namespace == "" {
		return id.Kind + " " + id.Name
	}
	return id.Kind + " " + id.Namespace + "/" + id.Name
}

// ID returns the object's identity.
func (o *Object) ID() ObjectID {
	return ObjectID{Kind: o.Kind, Namespace: o.Object.GetNamespace(), Name: o.Object.GetName()}
}

// String implements fmt.Stringer.
func (o *Object) String() string { return o.ID().String() }

// LogValue implements slog.LogValuer.
func (o *Object) LogValue() slog.Value { return slog.StringValue(o.String()) }

// Objects is an immutable set of objects by their identity. The nil Objects is empty.
type Objects struct {
	byID map[ObjectID]*Object
	// inOrder is how they were given.
	inOrder []*Object
	// storage is shared by all claims; findStorage fills it in on first use.
	storage     Refs
	findStorage sync.Once
	// byDefault is the PriorityClass of pods that name none; it is found on first use.
	byDefault           *schedulingv1.PriorityClass
	findDefaultPriority sync.Once
	// spaces are the boundaries between sources; whole is the set that this one is a view of, nil if it is none.
	spaces *Spaces
	whole  *Objects
	// views by space are made on first use; viewing guards them.
	viewing sync.Mutex
	views   map[spaces.Space]*Objects
}

// NewObjects makes a set without boundaries; of two with one identity the first counts.
func NewObjects(list []*Object) *Objects { return NewObjectsIn(nil, list) }

// NewObjectsIn makes a set with boundaries: of two with one identity that of the local space counts, else the first.
func NewObjectsIn(within *Spaces, list []*Object) *Objects {
	o := &Objects{byID: make(map[ObjectID]*Object, len(list)), spaces: within}
	for _, obj := range localFirst(within, list) {
		if _, twice := o.byID[obj.ID()]; !twice {
			o.byID[obj.ID()] = obj
			o.inOrder = append(o.inOrder, obj)
		}
	}
	return o
}

// Get returns an object, nil when there is none.
func (o *Objects) Get(id ObjectID) *Object {
	if o == nil {
		return nil
	}
	return o.byID[id]
}

// OfKind returns all objects of a kind, in the order of their precedence.
func (o *Objects) OfKind(kind string) []*Object {
	if o == nil {
		return nil
	}
	var all []*Object
	for _, obj := range o.inOrder {
		if obj.Kind == kind {
			all = append(all, obj)
		}
	}
	return all
}

// typed returns the object of a kind as its type of the API, nil when there is none.
func typed[T any](o *Objects, kind, namespace, name string) *T {
	obj := o.Get(ObjectID{Kind: kind, Namespace: namespace, Name: name})
	if obj == nil {
		return nil
	}
	t, _ := any(obj.Object).(*T)
	return t
}

// ConfigMap returns a ConfigMap, nil when there is none.
func (o *Objects) ConfigMap(namespace, name string) *corev1.ConfigMap {
	return typed[corev1.ConfigMap](o, "ConfigMap", namespace, name)
}

// Secret returns a Secret, nil when there is none.
func (o *Objects) Secret(namespace, name string) *corev1.Secret {
	return typed[corev1.Secret](o, "Secret", namespace, name)
}

// PersistentVolumeClaim returns a claim, nil when there is none.
func (o *Objects) PersistentVolumeClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return typed[corev1.PersistentVolumeClaim](o, "PersistentVolumeClaim", namespace, name)
}

// PersistentVolume returns a volume, nil when there is none.
func (o *Objects) PersistentVolume(name string) *corev1.PersistentVolume {
	return typed[corev1.PersistentVolume](o, "PersistentVolume", "", name)
}

// RuntimeClass returns a RuntimeClass, nil when there is none.
func (o *Objects) RuntimeClass(name string) *nodev1.RuntimeClass {
	return typed[nodev1.RuntimeClass](o, "RuntimeClass", "", name)
}

// ImmutableEdits returns an error for each object of now that changes an immutable object of old, or the handler of a RuntimeClass. Such an
// object may be removed, and created again later.
func ImmutableEdits(old, now []*Object) []*Error {
	before := NewObjects(old)
	var errs []*Error
	for _, o := range now {
		was := before.Get(o.ID())
		if was == nil || was == o || sameHandler(was, o) && (!immutable(was) || sameContent(was, o)) {
			continue
		}
		errs = append(errs, &Error{
			File: o.Origin.File, Line: o.Origin.Line, Kind: o.Kind, Pod: Key{o.ID().Namespace, o.ID().Name}.String(),
			Msg:  "it is immutable and cannot be changed",
			Hint: "rename the changed one, or remove the document first and add it again",
		})
	}
	return errs
}

func immutable(o *Object) bool {
	var flag *bool
	switch t := o.Object.(type) {
	case *corev1.ConfigMap:
		flag = t.Immutable
	case *corev1.Secret:
		flag = t.Immutable
	}
	return flag != nil && *flag
}

// sameHandler compares the handlers of RuntimeClasses, which the API treats as immutable.
func sameHandler(a, b *Object) bool {
	x, ok1 := a.Object.(*nodev1.RuntimeClass)
	y, ok2 := b.Object.(*nodev1.RuntimeClass)
	return !ok1 || !ok2 || x.Handler == y.Handler
}

// sameContent compares what immutable protects, the flag included.
func sameContent(a, b *Object) bool {
	switch x := a.Object.(type) {
	case *corev1.ConfigMap:
		y, ok := b.Object.(*corev1.ConfigMap)
		return ok && immutable(b) && reflect.DeepEqual(x.Data, y.Data) && reflect.DeepEqual(x.BinaryData, y.BinaryData)
	case *corev1.Secret:
		y, ok := b.Object.(*corev1.Secret)
		return ok && immutable(b) && x.Type == y.Type && reflect.DeepEqual(x.Data, y.Data)
	}
	return true
}
