// Package managed implements server-side apply: it merges applied configurations, and tracks field ownership in metadata.managedFields.
//
// It must not know where objects come from, nor store them. The schema of the kinds is a compressed file that TestSchemaIsCurrent generates
// from that of client-go (go test ./node/kubeapi/managed -update); it is unpacked on first use.
//
// Goroutines: none.
package managed

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/internal/quantity"
	"monopod/node/kubeapi/kinds"
)

// maxEntries is how many entries a list or map of a tracked object may have. Field sets are sorted lists, so inserting is quadratic.
const maxEntries = 10_000

// Tracks reports whether the fields of a kind's objects are tracked from creation on, as kube-apiserver does: otherwise a later Apply would
// attribute all fields of objects created by `kubectl apply` or Helm to a different manager, and conflict. It costs 0.1 to 0.7 ms. Leases
// and Events are written every few seconds and never applied: they are tracked only once they have managed fields.
func Tracks(k *kinds.Kind) bool {
	return k.Kind != "Event" && k.Kind != "Lease"
}

// Update returns now with the managed fields that result from a create or update of live by a manager. For a create, live is an empty
// object. now may be modified. If tracking fails, the managed fields of live are kept.
func Update(k *kinds.Kind, subresource string, live, now kinds.Object, manager string) kinds.Object {
	if !Tracks(k) && len(live.GetManagedFields()) == 0 && len(now.GetManagedFields()) == 0 {
		return now
	}
	if largest(reflect.ValueOf(now)) > maxEntries {
		now.SetManagedFields(live.GetManagedFields())
		return now
	}
	m, err := managerOf(k.GroupVersionKind, subresource)
	if err != nil {
		now.SetManagedFields(live.GetManagedFields())
		return now
	}
	tracked, ok := m.UpdateNoErrors(withKind(k, live), withKind(k, now), manager).(kinds.Object)
	if !ok {
		return now
	}
	return tracked
}

// Apply returns the result of applying a manager's patch to live; for a create, live is an empty object. Conflicts with other managers are
// 409, unless force is set. live is not modified.
func Apply(k *kinds.Kind, subresource string, live kinds.Object, patch map[string]any, manager string, force bool) (o kinds.Object, err error) {
	if most := largest(reflect.ValueOf(patch)); most > maxEntries {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("applied lists and maps are limited to %d entries; this one has %d", maxEntries, most))
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := quantity.Check(data, reflect.TypeOf(live)); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m, err := managerOf(k.GroupVersionKind, subresource)
	if err != nil {
		return nil, err
	}
	applied, err := m.Apply(withKind(k, live.DeepCopyObject().(kinds.Object)), &unstructured.Unstructured{Object: patch}, manager, force)
	if err != nil {
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return nil, err
		}
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o, ok := applied.(kinds.Object)
	if !ok {
		return nil, fmt.Errorf("apply made a %T", applied)
	}
	return withKind(k, o), nil
}

func withKind(k *kinds.Kind, o kinds.Object) kinds.Object {
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return o
}

// converter is created on first use: most agents never need it.
var converter = sync.OnceValues(func() (managedfields.TypeConverter, error) {
	parser, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack the schema of managed fields: %w", err)
	}
	return managedfields.NewSchemeTypeConverter(kinds.Scheme(), parser), nil
})

func managerOf(kind schema.GroupVersionKind, subresource string) (*managedfields.FieldManager, error) {
	c, err := converter()
	if err != nil {
		return nil, err
	}
	s := kinds.Scheme()
	return managedfields.NewDefaultFieldManager(c, s, noDefaults{}, s, kind, kind.GroupVersion(), subresource, unowned(kind, subresource))
}

// unowned returns the fields that writers of an object never own, because the server resets them. The status is owned by writers of the
// status subresource.
func unowned(kind schema.GroupVersionKind, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	if subresource != "" {
		return nil
	}
	fields := []fieldpath.Path{fieldpath.MakePathOrDie("status")}
	if kind.Kind == "Namespace" {
		fields = append(fields, fieldpath.MakePathOrDie("spec"))
	}
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(kind.GroupVersion().String()): fieldpath.NewSet(fields...),
	})
}

// noDefaults leaves defaults to package strategy, which sets them after the merge.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// largest is the length of the longest list or map in a value; bytes count as one.
func largest(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return largest(v.Elem())
	case reflect.Struct:
		if t := v.Type(); t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.MicroTime]() { // it points to the process's time zones
			return 0
		}
		n := 0
		for _, field := range v.Fields() {
			n = max(n, largest(field))
		}
		return n
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 1
		}
		n := v.Len()
		for i := 0; i < v.Len() && n <= maxEntries; i++ {
			n = max(n, largest(v.Index(i)))
		}
		return n
	case reflect.Map:
		n := v.Len()
		for entries := v.MapRange(); n <= maxEntries && entries.Next(); {
			n = max(n, largest(entries.Value()))
		}
		return n
	}
	return 0
}
