// Package tables defines the columns that `kubectl get` shows for each kind, and builds the rows.
//
// Names, order and priorities of columns are those of Kubernetes, because scripts parse them. It must not read the clock, nor anything but
// the object of a row.
//
// Goroutines: none.
package tables

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/node/kubeapi/kinds"
)

// Cells for missing values.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

// Columns returns the columns of a kind. Those with a priority above 0 are shown by `-o wide`. The result must not be modified.
func Columns(k *kinds.Kind) []metav1.TableColumnDefinition { return tableOf(k).columns }

// Row returns the cells of an object, one for each of Columns.
func Row(k *kinds.Kind, o kinds.Object, now time.Time) []any {
	t := tableOf(k)
	if cells := t.row(o, now); len(cells) == len(t.columns) {
		return cells
	}
	return make([]any, len(t.columns)) // an object of a different kind
}

// Of returns the table of objects of one kind; it is empty if the API does not have the kind. Objects are printed as they are in shown; of
// those that are not there, nothing but the name is known. Rows have the names of their objects alone.
func Of(objects []metav1.Object, shown map[*kinds.Kind][]kinds.Object, now time.Time) *metav1.Table {
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "Table"}, Rows: []metav1.TableRow{}}
	var k *kinds.Kind
	asShown := map[types.NamespacedName]kinds.Object{}
	for _, o := range objects {
		typed, ok := o.(kinds.Object)
		if !ok {
			continue
		}
		if k == nil {
			if k = kinds.ByKind(typed.GetObjectKind().GroupVersionKind()); k == nil {
				return t
			}
			t.ColumnDefinitions = Columns(k)
			for _, one := range shown[k] {
				asShown[types.NamespacedName{Namespace: one.GetNamespace(), Name: one.GetName()}] = one
			}
		}
		name := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}
		cells := slices.Repeat([]any{unknown}, len(t.ColumnDefinitions))
		cells[0] = name.Name
		if one := asShown[types.NamespacedName{Namespace: name.Namespace, Name: name.Name}]; one != nil {
			cells = Row(k, one, now)
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: name}}})
	}
	return t
}

// Conditions returns the conditions of a table row: whether a pod has completed.
func Conditions(o kinds.Object) []metav1.TableRowCondition {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	message := ""
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		message = "All containers of the pod completed."
	case corev1.PodFailed:
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase), Message: message}}
}

// table defines how a kind is shown.
type table struct {
	columns []metav1.TableColumnDefinition
	row     func(o kinds.Object, now time.Time) []any
}

// show returns a table. The columns are comma-separated; the prefix "*" marks columns of `-o wide`, "#" numbers, "?" booleans.
func show[T kinds.Object](list string, row func(o T, now time.Time) []any) *table {
	return &table{columns: columns(list), row: func(o kinds.Object, now time.Time) []any {
		if typed, ok := o.(T); ok {
			return row(typed, now)
		}
		return nil
	}}
}

func columns(list string) []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	for name := range strings.SplitSeq(list, ",") {
		c := metav1.TableColumnDefinition{Type: "string"}
		for mark := true; mark; {
			switch name[0] {
			case '*':
				c.Priority = 1
			case '#':
				c.Type = "integer"
			case '?':
				c.Type = "boolean"
			default:
				mark = false
				continue
			}
			name = name[1:]
		}
		c.Name = name
		switch name {
		case "Name":
			c.Format, c.Description = "name", "The name of the object, unique among those of its kind and namespace."
		case "Created At":
			c.Type, c.Description = "date", "The time at which the object was created."
		case "Age":
			c.Description = "The time since the object was created."
		}
		all = append(all, c)
	}
	return all
}

// bare is the table of kinds without their own columns.
var bare = sync.OnceValue(func() *table {
	return show("Name,Age", func(o kinds.Object, now time.Time) []any { return []any{o.GetName(), created(o, now)} })
})

var tables = sync.OnceValue(func() map[schema.GroupVersionKind]*table {
	all := map[schema.GroupVersionKind]*table{}
	for _, add := range []func(map[schema.GroupVersionKind]*table){core, nodes, workloads, volumes, services, classes, others, inert} {
		add(all)
	}
	return all
})

func tableOf(k *kinds.Kind) *table {
	if t := tables()[k.GroupVersionKind]; t != nil {
		return t
	}
	return bare()
}

func created(o kinds.Object, now time.Time) string { return since(o.GetCreationTimestamp().Time, now) }

func since(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// shortList is the number of list elements that are shown, before the count of the others.
const shortList = 3
