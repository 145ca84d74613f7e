package document

import (
	"bytes"
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
)

// Problem is a finding about one field of one document, before file and position are known.
type Problem struct {
	// Path is the field's path from the root of the document.
	Path string
	Msg  string
	Hint string
	// Type is the error type of Kubernetes validation, empty for other problems.
	Type field.ErrorType
	// Line and column are set where they are known without looking for path.
	Line, Column int
	// AtKey is set if the problem is the field itself and not its value.
	AtKey bool
}

// Item is one object within a document: the document itself or an element of a list.
type Item struct {
	*Source
	// Prefix is the path of the object in the document, empty or like "items[3]".
	Prefix string
	// Element is the type that an element of a list need not name: that of a Pod in a PodList.
	Element metav1.TypeMeta
	// Twice is set if the document has duplicate keys.
	Twice bool
	// Nested is how many lists it is in.
	Nested int
	// Kind is the kind of an object that is no Pod.
	Kind string
	// Secret keeps values out of messages.
	Secret bool
}

// Duplicates returns the keys of the object that stand twice.
func (it Item) Duplicates() []Problem {
	var found []Problem
	for _, p := range it.allDuplicates() {
		if Within(p.Path, it.Prefix) {
			found = append(found, p)
		}
	}
	return found
}

// Path extends the path of the object.
func (it Item) Path(field string) string {
	if it.Prefix == "" || field == "" {
		return it.Prefix + field
	}
	return it.Prefix + "." + field
}

// IsPod reports whether a type, completed by that of the list, is v1 Pod.
func (it Item) IsPod(t metav1.TypeMeta) bool {
	t = it.TypeOf(t)
	return t.Kind == "Pod" && t.APIVersion == "v1"
}

// MayBePod reports whether an object in JSON is worth decoding as a Pod: it contains the word, or is an element of a PodList. A Pod whose
// kind is written with escapes is recognized later.
func (it Item) MayBePod(data []byte) bool {
	return it.Element.Kind == "Pod" || bytes.Contains(data, []byte(`"Pod"`))
}

// TypeOf completes a type with that of the list.
func (it Item) TypeOf(t metav1.TypeMeta) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: cmp.Or(t.Kind, it.Element.Kind), APIVersion: cmp.Or(t.APIVersion, it.Element.APIVersion)}
}

// Complete fills in the type of an element of a list, and returns it.
func (it Item) Complete(m map[string]any) (kind, version string) {
	for key, of := range map[string]string{"kind": it.Element.Kind, "apiVersion": it.Element.APIVersion} {
		if was, written := m[key]; of != "" && (!written || was == nil) {
			m[key] = of
		}
	}
	kind, _ = m["kind"].(string)
	version, _ = m["apiVersion"].(string)
	return kind, version
}

// Within reports whether path is root or a field inside it.
func Within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (root == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Errors turns problems into errors with positions.
func (it Item) Errors(pod string, problems []Problem) []*manifests.Error {
	errs := make([]*manifests.Error, 0, len(problems))
	for _, p := range problems {
		e := &manifests.Error{File: it.File, Line: p.Line, Column: p.Column, Kind: it.Kind, Pod: pod, Field: p.Path, Msg: p.Msg, Hint: p.Hint, Type: p.Type}
		if e.Line == 0 {
			e.Line, e.Column = it.Position(p)
		}
		errs = append(errs, e)
	}
	return errs
}

// FirstLine is the line at which the object starts.
func (it Item) FirstLine() int {
	if it.Prefix != "" {
		line, _ := it.Position(Problem{Path: it.Prefix})
		return line
	}
	line := it.Doc.Line
	for rest := it.Doc.Data; len(rest) > 0; line++ {
		n, size := lineEnd(rest)
		text := rest[:n]
		if behind, ok := marker(text, "---"); ok {
			text = behind
		}
		if hasContent(text) && !bytes.HasPrefix(text, []byte("%")) {
			break
		}
		rest = rest[n+size:]
	}
	return line
}
