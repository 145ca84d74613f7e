package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/internal/quantity"
	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/explain"
	"monopod/manifests/kinds"
)

// Document is one object of an input, an element of a list included, as it was written: neither defaulted nor validated.
type Document struct {
	ID manifests.ObjectID
	// Line is the 1-based line at which it starts.
	Line int
	// Canonical is the document as YAML of its own: keys sorted, without comments, anchors and styles. Documents that differ only in those
	// have the same.
	Canonical []byte
	// ownable has the controller of the document.
	ownable ownable
}

// Split splits an input into its objects, in their order. It drops documents of ignored kinds, and those whose controller is in the same
// input. The error covers everything that cannot be split. Split does not validate: All does.
func Split(file string, data []byte) ([]Document, error) {
	l := loader{file: file}
	if err := l.checkBytes(data); err != nil {
		return nil, err
	}
	var s split
	documents := document.Split(bytes.TrimPrefix(data, []byte(utf8BOM)))
	for _, d := range documents {
		s.document(d, document.Item{Source: &document.Source{File: file, Doc: d}})
	}
	if len(documents) > document.MaxObjects || len(s.docs) > document.MaxObjects {
		return nil, joinErrors([]*manifests.Error{{File: file, Msg: tooManyObjects, Hint: "split it"}})
	}
	return withoutOwned(s.docs), errors.Join(s.errs...)
}

// split collects the documents of an input.
type split struct {
	docs []Document
	errs []error
	// unfolded is as in loader.
	unfolded int
}

func (s *split) fail(errs []*manifests.Error) {
	for _, e := range errs {
		s.errs = append(s.errs, e)
	}
}

func (s *split) document(d document.Document, it document.Item) {
	data, err := d.Data, document.CheckLimits(d, &s.unfolded)
	if !d.JSON && err == nil {
		data, err = it.StrictJSON()
	}
	var value any
	if err == nil {
		err = quantity.Unmarshal(data, &value)
	}
	if err != nil {
		s.fail([]*manifests.Error{explain.SyntaxError(it.Source, err)})
		return
	}
	if value != nil {
		s.object(value, it)
	}
}

// object enters an object, or the elements of a list.
func (s *split) object(value any, it document.Item) {
	m, ok := value.(map[string]any)
	if !ok {
		s.fail(it.Errors("", []document.Problem{notAnObject(value, it)}))
		return
	}
	if it.Element.Kind != "" { // the list has said what it is
		m = maps.Clone(m)
	}
	kind, version := it.Complete(m)
	element, isList := kinds.ListElement(kind, version)
	if items, ok := m["items"].([]any); ok && isList {
		if it.Nested >= maxNested {
			s.fail(it.Errors("", []document.Problem{{Path: it.Prefix, Msg: tooDeep}}))
			return
		}
		for i, value := range items {
			if len(s.docs)+len(s.errs) > document.MaxObjects {
				return
			}
			s.object(value, document.Item{Source: it.Source, Prefix: fmt.Sprintf("%s[%d]", it.Path("items"), i), Element: element, Nested: it.Nested + 1})
		}
		return
	}
	info, known := kinds.Known().ByKind[kind]
	if _, ignored := kinds.Known().Ignores(kind, version); ignored && (!known || info.Version != version) {
		return
	}
	if kind != "Pod" && !known {
		if !isList {
			s.fail(it.Errors("", []document.Problem{kinds.Refuse(m, it)}))
		}
		return
	}
	s.add(m, it, manifests.ObjectID{Kind: kind, Namespace: namespaceOf(m, info)})
}

// add enters an object of a known kind.
func (s *split) add(m map[string]any, it document.Item, id manifests.ObjectID) {
	meta, _ := m["metadata"].(map[string]any)
	id.Name, _ = meta["name"].(string)
	if id.Name == "" {
		it.Kind = id.Kind
		s.fail(it.Errors("", []document.Problem{{Path: it.Path("metadata.name"), Msg: "the name is missing"}}))
		return
	}
	data, err := json.Marshal(m)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		s.fail(it.Errors("", []document.Problem{{Path: it.Prefix, Msg: "it cannot be written as YAML: " + err.Error()}}))
		return
	}
	s.docs = append(s.docs, Document{ID: id, Line: it.FirstLine(), Canonical: data, ownable: ownableOf(meta, id)})
}

// ownableOf reads what ownership follows from. What cannot be read does not matter: All reports it.
func ownableOf(meta map[string]any, id manifests.ObjectID) ownable {
	o := ownable{id: id}
	var m metav1.ObjectMeta
	relevant := map[string]any{"uid": meta["uid"], "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]}
	if data, err := json.Marshal(relevant); err != nil || quantity.Unmarshal(data, &m) != nil {
		return o
	}
	o.uid, o.labels, o.owner = m.UID, m.Labels, takeOwner(&m, AuthorUser)
	return o
}

// namespaceOf is that of an object; cluster-wide kinds have none.
func namespaceOf(m map[string]any, info kinds.Info) string {
	if info.Cluster {
		return ""
	}
	meta, _ := m["metadata"].(map[string]any)
	if ns, _ := meta["namespace"].(string); ns != "" {
		return ns
	}
	return corev1.NamespaceDefault
}
