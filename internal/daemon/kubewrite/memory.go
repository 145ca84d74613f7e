package kubewrite

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
	"monopod/watcher/applied"
)

// Limits of stored objects.
const (
	// maxMemory is the maximum number of Leases, and of Events, in memory. The oldest is evicted.
	maxMemory = 1000
	// maxMemorySize is the size limit of each of them.
	maxMemorySize = 32 << 10
	// maxKept is the maximum number of stored objects that are not manifests.
	maxKept = 10_000
)

// OwnObjects holds the objects of clients that are not manifests: Leases and Events, which are lost on restart, and Namespaces, ServiceAccounts
// and those of inert kinds, which are stored. kubeview shows them. Its methods may be called from any goroutine.
type OwnObjects struct {
	store *applied.Store

	mu sync.Mutex
	// kept are the stored objects; nil until they have been read.
	kept map[manifests.ObjectID]kinds.Object
	// leases and events are lost on restart.
	leases, events volatile
	// gates are the conditions of readiness gates, nil: they have not been read, and storedGates those in the file.
	gates, storedGates gates
	// last is the metadata of pods that end, by uid: they are not stored any more.
	last map[types.UID]*metav1.ObjectMeta
}

// NewMemory returns the Memory of a store. It does no I/O.
func NewMemory(store *applied.Store) *OwnObjects { return &OwnObjects{store: store} }

// volatile holds objects of one kind that are lost on restart, in the order of their last change.
type volatile struct {
	order []types.NamespacedName
	by    map[types.NamespacedName]kinds.Object
}

func (v *volatile) put(o kinds.Object) {
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	v.remove(key)
	if len(v.order) >= maxMemory {
		v.remove(v.order[0])
	}
	if v.by == nil {
		v.by = map[types.NamespacedName]kinds.Object{}
	}
	v.order, v.by[key] = append(v.order, key), o
}

func (v *volatile) remove(key types.NamespacedName) {
	if v.by[key] != nil {
		delete(v.by, key)
		v.order = slices.DeleteFunc(v.order, func(k types.NamespacedName) bool { return k == key })
	}
}

func (v *volatile) all() []kinds.Object {
	list := make([]kinds.Object, 0, len(v.order))
	for _, key := range v.order {
		list = append(list, v.by[key])
	}
	return list
}

// Objects returns the objects of a kind. They are shared and must not be modified. An unchanged object is the same pointer as before.
// state.Store announces changes. Events of events.k8s.io are returned as Events of the core group.
func (m *OwnObjects) Objects(k *kinds.Kind) []kinds.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.memoryOf(k.Kind); v != nil {
		if k.GroupVersion() == eventsv1.SchemeGroupVersion {
			return nil
		}
		return v.all()
	}
	if !applied.Kept(k.Kind) {
		return nil
	}
	m.readLocked()
	var all []kinds.Object
	for id, o := range m.kept {
		if id.Kind == k.Kind {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, kinds.Compare)
	return all
}

// Object returns a stored object, nil if it does not exist. It is shared and must not be modified.
func (m *OwnObjects) Object(id manifests.ObjectID) kinds.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readLocked()
	return m.kept[id]
}

// setLast keeps the metadata of a pod that ends.
func (m *OwnObjects) setLast(pod *corev1.Pod, exists func(types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[types.UID]*metav1.ObjectMeta{}
	}
	maps.DeleteFunc(m.last, func(u types.UID, _ *metav1.ObjectMeta) bool { return !exists(u) })
	m.last[pod.UID] = &metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations, ManagedFields: pod.ManagedFields}
}

// Last returns the labels, annotations and managed fields that were written to a pod after it was deleted; nil if none. They are shared.
func (m *OwnObjects) Last(uid types.UID) *metav1.ObjectMeta {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[uid]
}

// readLocked reads the stored objects once. One that is damaged is left out: it can be written again.
func (m *OwnObjects) readLocked() {
	if m.kept != nil {
		return
	}
	m.kept = map[manifests.ObjectID]kinds.Object{}
	notes := m.store.Notes()
	for name, document := range m.store.Documents() {
		if o := parseKept(document); o != nil && applied.FileName(idOf(o)) == name {
			notes[name].SetOn(o)
			m.kept[idOf(o)] = o
		}
	}
}

// parseKept returns the object of a stored document, nil if it cannot be parsed.
func parseKept(document []byte) kinds.Object {
	var head metav1.TypeMeta
	if yaml.Unmarshal(document, &head) != nil || !applied.Kept(head.Kind) {
		return nil
	}
	kind := kinds.ByKind(head.GroupVersionKind())
	if kind == nil {
		return nil
	}
	o := kind.New()
	if yaml.Unmarshal(document, o) != nil {
		return nil
	}
	return o
}

// count returns how many objects are stored.
func (m *OwnObjects) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readLocked()
	return len(m.kept)
}

// memoryOf returns the volatile objects of a kind, nil for other kinds.
func (m *OwnObjects) memoryOf(kind string) *volatile {
	switch kind {
	case "Lease":
		return &m.leases
	case "Event":
		return &m.events
	}
	return nil
}

// change updates the objects from a stored change.
func (m *OwnObjects) change(put []kinds.Object, remove []manifests.ObjectID) {
	if len(put)+len(remove) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readLocked()
	for _, id := range remove {
		if v := m.memoryOf(id.Kind); v != nil {
			v.remove(types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
		} else {
			delete(m.kept, id)
		}
	}
	for _, o := range put {
		id := idOf(o)
		if v := m.memoryOf(id.Kind); v != nil {
			v.put(o)
		} else {
			m.kept[id] = o
		}
	}
}

// has reports whether the object exists.
func (m *OwnObjects) has(id manifests.ObjectID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readLocked()
	if v := m.memoryOf(id.Kind); v != nil {
		return v.by[types.NamespacedName{Namespace: id.Namespace, Name: id.Name}] != nil
	}
	return m.kept[id] != nil
}

// volatileObject returns the copy of an object that is kept in memory.
func volatileObject(o kinds.Object) (kinds.Object, error) {
	c := o.DeepCopyObject().(kinds.Object)
	if e, ok := c.(*eventsv1.Event); ok {
		c = coreEvent(e)
	}
	sized, ok := c.(interface{ Size() int })
	if size := 0; ok {
		if size = sized.Size(); size > maxMemorySize {
			return nil, fmt.Errorf("too large: %d bytes, at most %d; shorten its text fields", size, maxMemorySize)
		}
	}
	return c, nil
}

// coreEvent converts an Event of events.k8s.io to the core group: both kinds show the same objects.
func coreEvent(e *eventsv1.Event) *corev1.Event {
	c := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Reason: e.Reason, Message: e.Note, Source: e.DeprecatedSource, Type: e.Type,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount, EventTime: e.EventTime,
		Action: e.Action, Related: e.Related, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		c.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	c.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return c
}

func idOf(o kinds.Object) manifests.ObjectID {
	return manifests.ObjectID{Kind: o.GetObjectKind().GroupVersionKind().Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}
