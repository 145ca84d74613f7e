package kubeview

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/daemon/kubeview/derived"
	"monopod/internal/daemon/kubeview/shown"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/storage"
)

// Annotations of objects that are not defined by the API.
const (
	// AnnotationOrigin is where an object is defined, as FILE:LINE or URL.
	AnnotationOrigin = storage.AnnotationOrigin
	// AnnotationSource is the name of the source of an object.
	AnnotationSource = "kubernetes.io/config.source"

	annotationHash = "kubernetes.io/config.hash"
	annotationSeen = "kubernetes.io/config.seen"
)

// kind returns the kind with a name in a group and version, which must be in the table.
func kind(gv schema.GroupVersion, name string) *kinds.Kind { return kinds.ByKind(gv.WithKind(name)) }

// uidOf returns the uid of an object without a stored one: UUIDv5 of the node, the kind, the namespace and the name.
func (v *View) uidOf(kind, namespace, name string) types.UID {
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join([]string{"monopod.dev", v.cfg.Node, kind, namespace, name}, "\n"))).String())
}

// record is the in-memory record of an object while it exists.
type record struct {
	created    metav1.Time
	generation int64
	// document is the document to which the generation belongs.
	document metav1.Object
	used     bool
}

// records holds the records of all objects, by uid.
type records map[types.UID]*record

// of returns the life of an object, which begins now if it is new.
func (l records) of(uid types.UID, now time.Time) *record {
	if l[uid] == nil {
		l[uid] = &record{created: metav1.NewTime(now.Truncate(time.Second)), generation: 1}
	}
	l[uid].used = true
	return l[uid]
}

// prune drops the records that were not used since the last call.
func (l records) prune() {
	maps.DeleteFunc(l, func(_ types.UID, one *record) bool {
		used := one.used
		one.used = false
		return !used
	})
}

// changed increments the generation if the document has changed.
func (l *record) changed(document metav1.Object) {
	if l.document != nil && l.document != document && !shown.SameSpec(l.document, document) {
		l.generation++
	}
	l.document = document
}

// shallow returns a shallow copy of an object.
func shallow[T metav1.Object](o T) T {
	c := reflect.New(reflect.TypeOf(o).Elem())
	c.Elem().Set(reflect.ValueOf(o).Elem())
	return c.Interface().(T)
}

// identify completes the metadata of a shallow copy of a document.
func (b *build) identify(o metav1.Object, k string, doc *manifests.Object) {
	o.SetResourceVersion("")
	o.SetSelfLink("")
	o.SetManagedFields(nil)
	o.SetCreationTimestamp(metav1.Time{})
	o.SetGeneration(0)
	o.SetDeletionTimestamp(nil)
	doc.Given.SetOn(o)
	if o.GetUID() == "" {
		o.SetUID(b.view.uidOf(k, o.GetNamespace(), o.GetName()))
	}
	l := b.view.lives.of(o.GetUID(), createdAt(b, doc.Origin))
	l.changed(doc.Object)
	if ts := o.GetCreationTimestamp(); ts.IsZero() {
		o.SetCreationTimestamp(l.created)
	}
	if o.GetGeneration() == 0 && shown.HasGeneration(o) {
		o.SetGeneration(l.generation)
	}
	o.SetAnnotations(originated(o.GetAnnotations(), doc.Origin))
}

// createdAt returns the creation time of a document: that of its file, or else that of objects that are new.
func createdAt(b *build, o manifests.Origin) time.Time {
	if b.view.cfg.ModTime != nil && o.Source == config.SourceFile {
		if at, ok := b.view.cfg.ModTime(o.File); ok && at.Before(b.now) {
			return at
		}
	}
	return b.born
}

// originated adds to annotations where an object is defined, unless that is the API: then it removes what a client may have copied from another
// object.
func originated(a map[string]string, o manifests.Origin) map[string]string {
	if o.Source == config.SourceApplied || o == (manifests.Origin{}) {
		if _, found := a[AnnotationOrigin]; found {
			a = maps.Clone(a)
			delete(a, AnnotationOrigin)
		}
		return a
	}
	a = maps.Clone(a)
	if a == nil {
		a = map[string]string{}
	}
	a[AnnotationSource], a[AnnotationOrigin] = o.Source, node.Position(o)
	return a
}

// made completes the metadata of a generated object, unless it has been completed before.
func (b *build) made(o kinds.Object, k *kinds.Kind) kinds.Object {
	if o.GetUID() != "" {
		b.view.lives.of(o.GetUID(), b.born)
		return o
	}
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	o.SetUID(b.view.derived.UID(derived.ID{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName()}))
	o.SetCreationTimestamp(b.view.lives.of(o.GetUID(), b.born).created)
	return o
}

// memo keeps the objects of the last build, so that unchanged objects are the same pointers.
type memo struct{ last, now map[memoKey]memoEntry }

type memoKey struct {
	kind            *kinds.Kind
	namespace, name string
}

type memoEntry struct {
	inputs any
	object kinds.Object
}

func newMemo() memo { return memo{now: map[memoKey]memoEntry{}} }

// begin begins a new build.
func (m *memo) begin() { m.last, m.now = m.now, make(map[memoKey]memoEntry, len(m.now)) }

// get returns the previous object if it was built from the same inputs, which are comparable, or else a new one.
func (m *memo) get(key memoKey, inputs any, create func() kinds.Object) kinds.Object {
	e, ok := m.last[key]
	if !ok || e.inputs != inputs {
		e = memoEntry{inputs, create()}
	}
	m.now[key] = e
	return e.object
}

// settle returns the previous object if the new one is equal.
func (m *memo) settle(k *kinds.Kind, o kinds.Object) kinds.Object {
	key := memoKey{k, o.GetNamespace(), o.GetName()}
	if e, ok := m.last[key]; ok && reflect.DeepEqual(e.object, o) {
		o = e.object
	}
	m.now[key] = memoEntry{nil, o}
	return o
}

// before returns the previous object with a name, nil if there was none.
func (m *memo) before(k *kinds.Kind, namespace, name string) kinds.Object {
	return m.last[memoKey{k, namespace, name}].object
}
