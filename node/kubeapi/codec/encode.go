package codec

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/node/kubeapi/kinds"
)

// Object writes one object with its kind; a Table of one row if the client requested that. It returns an error only if nothing was written.
func (f *Format) Object(w http.ResponseWriter, code int, o runtime.Object) error {
	shaped, err := f.transform(o, true)
	if err != nil {
		return err
	}
	b := f.respond(w, code)
	if err := f.encode(b, shaped); err != nil {
		return b.fail(err)
	}
	b.close()
	return nil
}

// encode writes one object that has its kind.
func (f *Format) encode(w io.Writer, o runtime.Object) error {
	switch f.media {
	case mediaProtobuf:
		return encodeProtobuf(w, o)
	case mediaYAML:
		text, err := yaml.Marshal(o)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	e := json.NewEncoder(w)
	if f.pretty {
		e.SetIndent("", "  ")
	}
	return e.Encode(o)
}

// transform returns the form in which an object of the state is encoded: a Table, its metadata, or a copy of its struct with the kind set.
func (f *Format) transform(o runtime.Object, columns bool) (runtime.Object, error) {
	gvk, err := kindOf(o)
	if err != nil {
		return nil, err
	}
	if object, ok := o.(kinds.Object); ok && f.shape == table {
		return f.table(gvk, object, columns), nil
	} else if ok && f.shape == metadata {
		return partial(object), nil
	}
	return withKind(o, gvk), nil
}

// kindOf returns the kind of an object, which need not be set in it.
func kindOf(o runtime.Object) (schema.GroupVersionKind, error) {
	if _, ok := o.(*metav1.Status); ok {
		return schema.GroupVersionKind{Version: "v1", Kind: "Status"}, nil
	}
	known, _, err := kinds.Scheme().ObjectKinds(o)
	if stated := o.GetObjectKind().GroupVersionKind(); !stated.Empty() && (err != nil || len(known) > 1) {
		return stated, nil
	}
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("encode %T: %w", o, err)
	}
	return known[0], nil
}

// withKind returns a shallow copy of the struct with the kind set.
func withKind(o runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	if o.GetObjectKind().GroupVersionKind() == gvk {
		return o
	}
	from := reflect.ValueOf(o)
	if from.Kind() != reflect.Pointer || from.IsNil() {
		return o
	}
	to := reflect.New(from.Type().Elem())
	to.Elem().Set(from.Elem())
	c := to.Interface().(runtime.Object) // the same type
	c.GetObjectKind().SetGroupVersionKind(gvk)
	return c
}

// partial returns the metadata of an object.
func partial(o metav1.Object) *metav1.PartialObjectMetadata {
	p := meta.AsPartialObjectMetadata(o)
	p.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return p
}
