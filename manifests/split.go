package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Document is one object of an input, an element of a list included, as it was written: neither defaulted nor validated.
type Document struct {
	ID ObjectID
	// Line is the 1-based line at which it starts.
	Line int
	// Canonical is the document as YAML of its own: keys sorted, without comments, anchors and styles. Two documents
	// that say the same in the same words have the same.
	Canonical []byte
	// ownable is what says whether a controller makes it.
	ownable ownable
}

// Split takes an input apart into its objects, in their order. Left out are documents of kinds that mean nothing here, and those that a
// controller of the same input makes.
// An error tells of everything that cannot be told apart; that the rest is valid is for LoadAll to say.
func Split(file string, data []byte) ([]Document, error) {
	l := loader{file: file}
	if err := l.checkBytes(data); err != nil {
		return nil, err
	}
	var s split
	documents := splitDocuments(bytes.TrimPrefix(data, []byte(utf8BOM)))
	for _, d := range documents {
		s.document(d, item{source: &source{file: file, doc: d}})
	}
	if len(documents) > maxObjects || len(s.docs) > maxObjects {
		return nil, joinErrors([]*Error{{File: file, Msg: tooManyObjects, Hint: "split it"}})
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

func (s *split) fail(errs []*Error) {
	for _, e := range errs {
		s.errs = append(s.errs, e)
	}
}

func (s *split) document(d document, it item) {
	data, err := d.data, examine(d, &s.unfolded)
	if !d.json && err == nil {
		data, err = it.strictJSON()
	}
	var value any
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &value)
	}
	if err != nil {
		s.fail([]*Error{it.syntaxError(err)})
		return
	}
	if value != nil {
		s.object(value, it)
	}
}

// object enters an object, or the elements of a list.
func (s *split) object(value any, it item) {
	m, ok := value.(map[string]any)
	if !ok {
		s.fail(it.errors("", []problem{notAnObject(value, it)}))
		return
	}
	if it.element.Kind != "" { // the list has said what it is
		m = maps.Clone(m)
	}
	kind, version := it.complete(m)
	element, isList := listElement(kind, version)
	if items, ok := m["items"].([]any); ok && isList {
		if it.nested >= maxNested {
			s.fail(it.errors("", []problem{{path: it.prefix, msg: tooDeep}}))
			return
		}
		for i, value := range items {
			if len(s.docs)+len(s.errs) > maxObjects {
				return
			}
			s.object(value, item{source: it.source, prefix: fmt.Sprintf("%s[%d]", it.path("items"), i), element: element, nested: it.nested + 1})
		}
		return
	}
	info, known := knownKinds().byKind[kind]
	if _, ignored := knownKinds().ignores(kind, version); ignored && (!known || info.version != version) {
		return
	}
	if kind != "Pod" && !known {
		if !isList {
			s.fail(it.errors("", []problem{refuseKind(m, it)}))
		}
		return
	}
	s.add(m, it, ObjectID{Kind: kind, Namespace: namespaceOf(m, info)})
}

// add enters an object of a known kind.
func (s *split) add(m map[string]any, it item, id ObjectID) {
	meta, _ := m["metadata"].(map[string]any)
	id.Name, _ = meta["name"].(string)
	if id.Name == "" {
		it.kind = id.Kind
		s.fail(it.errors("", []problem{{path: it.path("metadata.name"), msg: "the name is missing"}}))
		return
	}
	data, err := json.Marshal(m)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		s.fail(it.errors("", []problem{{path: it.prefix, msg: "it cannot be written as YAML: " + err.Error()}}))
		return
	}
	s.docs = append(s.docs, Document{ID: id, Line: it.firstLine(), Canonical: data, ownable: ownableOf(meta, id)})
}

// ownableOf reads what ownership follows from. What cannot be read does not matter: LoadAll reports it.
func ownableOf(meta map[string]any, id ObjectID) ownable {
	o := ownable{id: id}
	var m metav1.ObjectMeta
	relevant := map[string]any{"uid": meta["uid"], "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]}
	if data, err := json.Marshal(relevant); err != nil || kjson.UnmarshalCaseSensitivePreserveInts(data, &m) != nil {
		return o
	}
	o.uid, o.labels, o.owner = m.UID, m.Labels, takeOwner(&m, AuthorUser)
	return o
}

// namespaceOf is that of an object; cluster-wide kinds have none.
func namespaceOf(m map[string]any, info kindInfo) string {
	if info.cluster {
		return ""
	}
	meta, _ := m["metadata"].(map[string]any)
	if ns, _ := meta["namespace"].(string); ns != "" {
		return ns
	}
	return corev1.NamespaceDefault
}

// kindShortNames are those of kubectl.
func kindShortNames() map[string]string {
	return map[string]string{
		"po": "Pod", "cm": "ConfigMap", "pv": "PersistentVolume", "pvc": "PersistentVolumeClaim", "sc": "StorageClass", "svc": "Service",
		"rc": "ReplicationController", "deploy": "Deployment", "ds": "DaemonSet", "rs": "ReplicaSet", "sts": "StatefulSet", "cj": "CronJob",
	}
}

// FindKind returns the kind that a word of a command line means: its name in any case, in the plural or short. namespaced
// is false for cluster-wide kinds, ok for words that mean none.
func FindKind(word string) (kind string, namespaced, ok bool) {
	word = strings.ToLower(word)
	if kind, ok := kindShortNames()[word]; ok {
		word = strings.ToLower(kind)
	}
	for _, kind := range Kinds() {
		name := strings.ToLower(kind)
		if word == name || word == name+"s" || word == name+"es" {
			return kind, !knownKinds().byKind[kind].cluster, true
		}
	}
	return "", false, false
}

// Kinds are those that can be written, sorted.
func Kinds() []string {
	all := slices.Collect(maps.Keys(knownKinds().byKind))
	all = append(all, "Pod")
	slices.Sort(all)
	return all
}
