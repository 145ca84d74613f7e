package codec

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/tables"
)

// table returns a Table of one row. Without columns the field is null, as in watch events after the first.
func (f *Format) table(gvk schema.GroupVersionKind, o kinds.Object, columns bool) *metav1.Table {
	k := kinds.ByKind(gvk)
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "Table"},
		ListMeta: metav1.ListMeta{ResourceVersion: o.GetResourceVersion()},
		Rows:     []metav1.TableRow{f.row(k, o)},
	}
	switch {
	case !columns:
	case k != nil:
		t.ColumnDefinitions = tables.Columns(k)
	default:
		t.ColumnDefinitions = plainColumns()
	}
	return t
}

// row returns the row of an object. k is nil for kinds that exist only as subresources, such as Scale.
func (f *Format) row(k *kinds.Kind, o kinds.Object) metav1.TableRow {
	r := metav1.TableRow{}
	if k != nil {
		r.Cells, r.Conditions = tables.Row(k, o, time.Now()), tables.Conditions(o)
	} else {
		r.Cells = []any{o.GetName(), o.GetCreationTimestamp().UTC().Format(time.RFC3339)}
	}
	_, initial := o.GetAnnotations()[metav1.InitialEventsAnnotationKey]
	switch {
	case f.rows == metav1.IncludeObject:
		r.Object.Object = o
		if gvk, err := kindOf(o); err == nil {
			r.Object.Object = withKind(o, gvk)
		}
	case f.rows == metav1.IncludeNone && !initial:
	default:
		r.Object = runtime.RawExtension{Object: partial(o)}
	}
	return r
}

// plainColumns returns the columns of kinds without their own table.
func plainColumns() []metav1.TableColumnDefinition {
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Created At", Type: "date", Description: doc["creationTimestamp"]},
	}
}
