// Package kinds is the table of the kinds that monopod's Kubernetes API can serve: names, verbs, subresources and selectable fields.
//
// It must not know where objects come from, nor how they are encoded. Only kinds in the table are served, inert ones only if the
// configuration names them: Served. Discovery, paths and rules are all derived from it.
//
// Goroutines: none.
package kinds

import (
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind is a kind of objects, of one group and version.
type Kind struct {
	schema.GroupVersionKind
	// Plural is the name of the resource in paths, Singular and Short are additional names that kubectl accepts.
	Plural, Singular string
	Short            []string
	// Categories are names for groups of kinds, such as all.
	Categories []string
	Namespaced bool
	// Verbs of the resource: get, list, watch, create, update, patch, delete, deletecollection.
	Verbs        []string
	Subresources []Subresource
	// Virtual kinds are requests, such as reviews: they can only be created, and are never stored.
	Virtual bool
	// Inert kinds are stored without effect. They are served only if the configuration names them: see Served.
	Inert bool
	// OnDemand kinds have objects that are computed only on request, and their own revision log. Poll is the interval at which they are polled
	// while they are watched; 0 means whenever the daemon's state changes.
	OnDemand bool
	Poll     time.Duration

	fields func(runtime.Object) fields.Set
}

// Subresource is a path below an object.
type Subresource struct {
	// Name is, for example, log or scale.
	Name string
	// Kind is the kind of its requests and responses.
	Kind  schema.GroupVersionKind
	Verbs []string
}

// Resource returns the resource of the kind.
func (k *Kind) Resource() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Plural) }

// ListKind returns the kind of lists of such objects.
func (k *Kind) ListKind() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.Kind + "List") }

// Allows reports whether the resource has a verb.
func (k *Kind) Allows(verb string) bool { return slices.Contains(k.Verbs, verb) }

// Subresource returns a subresource by name, nil if the kind does not have it.
func (k *Kind) Subresource(name string) *Subresource {
	at := slices.IndexFunc(k.Subresources, func(s Subresource) bool { return s.Name == name })
	if at < 0 {
		return nil
	}
	return &k.Subresources[at]
}

// New returns an empty object of the kind, with its kind set.
func (k *Kind) New() Object {
	o, err := Scheme().New(k.GroupVersionKind)
	if err != nil {
		panic(err) // a test makes one of each kind
	}
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return o.(Object)
}

// Fields returns the fields of an object that selectors may name.
func (k *Kind) Fields(o Object) fields.Set {
	set := fields.Set{}
	if k.fields != nil {
		set = k.fields(o)
	}
	set["metadata.name"] = o.GetName()
	if k.Namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	return set
}

// table is All and its indexes.
var table = sync.OnceValue(func() (t struct {
	all        []*Kind
	byResource map[schema.GroupVersionResource]*Kind
	byKind     map[schema.GroupVersionKind]*Kind
},
) {
	t.all = all()
	t.byResource, t.byKind = map[schema.GroupVersionResource]*Kind{}, map[schema.GroupVersionKind]*Kind{}
	for _, k := range t.all {
		t.byResource[k.Resource()], t.byKind[k.GroupVersionKind] = k, k
	}
	return t
})

// All returns all kinds, also those that are not served, the core group first, then by group and name. The result must not be changed.
func All() []*Kind { return table().all }

// ByResource returns the kind of a resource, nil if it is not in the table.
func ByResource(r schema.GroupVersionResource) *Kind { return table().byResource[r] }

// ByKind returns the kind with this GroupVersionKind, nil if it is not in the table.
func ByKind(k schema.GroupVersionKind) *Kind { return table().byKind[k] }

// Compare orders by namespace and name.
func Compare(a, b Object) int {
	if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
		return c
	}
	return strings.Compare(a.GetName(), b.GetName())
}
