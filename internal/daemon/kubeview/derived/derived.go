// Package derived remembers what makes objects that are made of others, and what clients have deleted of them: ReplicaSets of Deployments, Jobs
// of CronJobs, what each Namespace has, and Namespaces that end with their pods.
//
// It must not build objects, nor know how they are stored. It is not safe for concurrent use.
//
// Goroutines: none.
package derived

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
)

// Own makes what each Namespace has, and the Service of the API.
const Own = "monopod, which makes it again"

// ID names an object.
type ID struct {
	Kind            *kinds.Kind
	Namespace, Name string
}

// Objects are those that are made of others. Make it with New.
type Objects struct {
	// start makes uids others than those of the last start.
	start time.Time
	// name returns the uid that belongs to a name.
	name func(kind, namespace, name string) types.UID
	// makers are what makes the objects of the last build.
	makers map[ID]maker
	// uids are those of objects that have taken the place of deleted ones, while they exist. count makes each of them another one.
	uids  map[ID]types.UID
	count int64
	// ending are Namespaces that have been deleted and still have pods, by name.
	ending map[string]*ending
}

type maker struct {
	name      string
	deletable bool
}

// ending is a Namespace that has been deleted. bare reports that its applied objects are gone.
type ending struct {
	object *corev1.Namespace
	bare   bool
}

// New returns an empty Objects. uid returns the uid that belongs to a name.
func New(start time.Time, uid func(kind, namespace, name string) types.UID) *Objects {
	return &Objects{start: start, name: uid, makers: map[ID]maker{}, uids: map[ID]types.UID{}, ending: map[string]*ending{}}
}

// Begin forgets what makes the objects of the last build.
func (d *Objects) Begin() { clear(d.makers) }

// Made remembers what makes an object, as "Deployment web", and whether another one takes its place after a client has deleted it.
func (d *Objects) Made(key ID, by string, deletable bool) { d.makers[key] = maker{by, deletable} }

// Maker returns what Made has remembered.
func (d *Objects) Maker(key ID) (by string, deletable bool) {
	m := d.makers[key]
	return m.name, m.deletable
}

// UID returns the uid of an object.
func (d *Objects) UID(key ID) types.UID {
	if uid, ok := d.uids[key]; ok {
		return uid
	}
	return d.name(key.Kind.Kind, key.Namespace, key.Name)
}

// Succeed gives an object another uid, which no object of its name has had, and returns it.
func (d *Objects) Succeed(key ID) types.UID {
	d.count++
	d.uids[key] = d.name(key.Kind.Kind, key.Namespace, fmt.Sprintf("%s\n%d\n%d", key.Name, d.start.UnixNano(), d.count))
	return d.uids[key]
}

// Prune forgets objects that do not exist any more, and Namespaces that have ended.
func (d *Objects) Prune(exists func(ID) bool, namespaces map[string]bool) {
	maps.DeleteFunc(d.uids, func(key ID, _ types.UID) bool { return !exists(key) })
	maps.DeleteFunc(d.ending, func(name string, _ *ending) bool { return !namespaces[name] })
}

// End makes a Namespace one that ends with its pods, unless it is one already.
func (d *Objects) End(n *corev1.Namespace, now time.Time) {
	if d.ending[n.Name] != nil {
		return
	}
	n = n.DeepCopy()
	if n.DeletionTimestamp == nil {
		n.DeletionTimestamp = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	n.Status.Phase = corev1.NamespaceTerminating
	d.ending[n.Name] = &ending{object: n}
}

// Ending returns a Namespace that ends with its pods; nil: it does not, or has been made again. Then another one has its name.
func (d *Objects) Ending(k *kinds.Kind, name string, desired *model.Desired) *corev1.Namespace {
	e := d.ending[name]
	if e == nil {
		return nil
	}
	applied, others := Documents(desired, name)
	if others || applied && e.bare {
		delete(d.ending, name)
		d.Succeed(ID{k, "", name})
		return nil
	}
	e.bare = !applied
	return e.object
}

// Forget forgets the end of a Namespace, which has been made again.
func (d *Objects) Forget(name string) { delete(d.ending, name) }

// Documents reports whether applied objects of a Namespace are desired, and whether others are.
func Documents(desired *model.Desired, namespace string) (applied, others bool) {
	found := func(o manifests.Origin, in string) {
		if in == namespace {
			applied, others = applied || o.Source == config.SourceApplied, others || o.Source != config.SourceApplied
		}
	}
	for _, p := range desired.Pods {
		found(p.Origin, p.Object.Namespace)
	}
	for _, list := range [][]*manifests.Object{desired.Objects, desired.Workloads} {
		for _, doc := range list {
			found(doc.Origin, doc.Object.GetNamespace())
		}
	}
	return applied, others
}

// Leaving reports whether nothing is in a Namespace but pods that end.
func Leaving(objects map[*kinds.Kind][]kinds.Object, namespace string) bool {
	switch namespace {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return false
	}
	pods := 0
	for k, all := range objects {
		if !k.Namespaced || k.Kind == "Event" { // what happened in a Namespace outlives it
			continue
		}
		for _, o := range all {
			switch {
			case o.GetNamespace() != namespace:
			case k.Kind != "Pod" || o.GetDeletionTimestamp() == nil:
				return false
			default:
				pods++
			}
		}
	}
	return pods > 0
}
