package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/tables"
)

// List writes a list, item by item. It returns an error only if nothing was written.
func (f *Format) List(w http.ResponseWriter, k *kinds.Kind, items []kinds.Object, revision uint64) error {
	l := list{Format: f, kind: k, items: items}
	l.head.ResourceVersion = strconv.FormatUint(revision, 10)
	gvk := k.ListKind()
	switch f.shape {
	case table:
		gvk, l.key, l.head.Columns = metav1.SchemeGroupVersion.WithKind("Table"), "rows", tables.Columns(k)
	case metadata:
		gvk, l.key = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"), "items"
	default:
		l.key = "items"
	}
	l.head.APIVersion, l.head.Kind = gvk.ToAPIVersionAndKind()
	b := f.respond(w, http.StatusOK)
	if err := l.write(b, gvk); err != nil {
		return b.fail(err)
	}
	b.close()
	return nil
}

// list is the state of a list being written.
type list struct {
	*Format
	kind  *kinds.Kind
	items []kinds.Object
	key   string // name of the items
	head  listHead

	// scratch receives copies of items without their kind, which items of lists do not have. It is reused while items have the same type.
	scratch reflect.Value
}

// listHead is a list without its items.
type listHead struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        `json:"metadata"`
	Columns         []metav1.TableColumnDefinition `json:"columnDefinitions,omitempty"`
}

// Metadata is that of a list.
type Metadata struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

func (l *list) write(w io.Writer, gvk schema.GroupVersionKind) error {
	switch {
	case l.media == mediaProtobuf:
		return encodeProtobufList(w, gvk, metav1.ListMeta{ResourceVersion: l.head.ResourceVersion}, len(l.items), l.message)
	case l.media == mediaYAML:
		return l.writeYAML(w)
	case l.pretty:
		return l.writeJSON(w, true)
	}
	return l.writeJSON(w, false)
}

// writeJSON writes the head without its closing brace, and the items.
func (l *list) writeJSON(w io.Writer, pretty bool) error {
	head, err := json.Marshal(l.head)
	end, between, e := "]}\n", ",", json.NewEncoder(w)
	if pretty {
		head, err = json.MarshalIndent(l.head, "", "  ")
		end, between = "  ]\n}\n", "    ,"
		e.SetIndent("    ", "  ")
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s,%q:[", bytes.TrimRight(bytes.TrimSuffix(head, []byte("}")), "\n"), l.key); err != nil {
		return err
	}
	for i, o := range l.items {
		if i > 0 {
			if _, err := io.WriteString(w, between); err != nil {
				return err
			}
		}
		if err := e.Encode(l.item(o)); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, end)
	return err
}

// writeYAML writes the items as elements of a sequence: each line after the first is indented.
func (l *list) writeYAML(w io.Writer) error {
	head, err := yaml.Marshal(l.head)
	if err != nil {
		return err
	}
	end := ":\n"
	if len(l.items) == 0 {
		end = ": []\n"
	}
	if _, err := fmt.Fprintf(w, "%s%s%s", head, l.key, end); err != nil {
		return err
	}
	for _, o := range l.items {
		text, err := yaml.Marshal(l.item(o))
		if err != nil {
			return err
		}
		start := "- "
		for line := range bytes.Lines(text) {
			if len(line) == 1 {
				start = "" // an empty line in a block scalar
			}
			if _, err := fmt.Fprintf(w, "%s%s", start, line); err != nil {
				return err
			}
			start = "  "
		}
	}
	return nil
}

// item returns the form in which an object is encoded.
func (l *list) item(o kinds.Object) any {
	switch l.shape {
	case table:
		return l.row(l.kind, o)
	case metadata:
		return partial(o)
	}
	return l.bare(o)
}

// message returns the protobuf form of an object, which has no kind.
func (l *list) message(i int) (runtime.ProtobufMarshaller, error) {
	var o any = l.items[i]
	if l.shape == metadata {
		o = partial(l.items[i])
	}
	m, ok := o.(runtime.ProtobufMarshaller)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf", o)
	}
	return m, nil
}

// bare returns an object without its kind, which is valid until the next call.
func (l *list) bare(o kinds.Object) runtime.Object {
	if o.GetObjectKind().GroupVersionKind().Empty() {
		return o
	}
	from := reflect.ValueOf(o)
	if !l.scratch.IsValid() || l.scratch.Type() != from.Type() {
		l.scratch = reflect.New(from.Type().Elem())
	}
	l.scratch.Elem().Set(from.Elem())
	c := l.scratch.Interface().(runtime.Object) // the same type
	c.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return c
}
