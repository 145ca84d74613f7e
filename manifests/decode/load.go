// Package decode turns the bytes of one input into manifests: it splits, decodes, defaults and validates every document, and applies the
// policy of its source.
//
// What it returns is complete and valid, or an error with file, line, column, object and field, and what to do. It is pure: no clock, no
// disk, no network, no goroutines; it must not know where the bytes come from nor what will run them.
package decode

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/kinds"
	"monopod/manifests/policy"
)

// Options are the facts about an input that are not in its bytes.
type Options struct {
	// Source is the name of the source that read the input; it becomes Origin.Source.
	Source string
	// Policy is that of the node for this source.
	Policy policy.Policy
	// Author wrote the documents.
	Author Author
	// Strict refuses documents that Kubernetes refuses, even unambiguous ones.
	Strict bool
}

// All decodes, defaults and validates every document of one input. The input is YAML or JSON and contains Pods, workloads, objects that
// pods use, and Lists of them. All returns either the whole input, or every problem of every document, in document order; manifests.Errors
// takes that error apart.
//
// An input of comments, empty documents or an empty list is valid and has no pods. An input of no bytes, or of white space only, is an
// error: a power cut or an interrupted copy leaves it behind, so it does not mean "run nothing".
func All(file string, data []byte, o Options) (*manifests.Content, error) {
	c, err := Parts(file, data, o)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Parts is All for callers that judge each object by itself: besides the error it returns every object without a problem. Of two objects
// with one identity the first counts. The content is nil if the input cannot be split into documents, or exceeds a limit.
func Parts(file string, data []byte, o Options) (*manifests.Content, error) {
	l := loader{file: file, source: o.Source, policy: o.Policy, author: o.Author, strict: o.Strict, first: map[manifests.ObjectID]int{}}
	if err := l.checkBytes(data); err != nil {
		return nil, err
	}
	for _, d := range document.Split(bytes.TrimPrefix(data, []byte(utf8BOM))) {
		l.document(d)
	}
	if !l.bearable(document.Item{Source: &document.Source{}}) {
		return nil, joinErrors(l.errs)
	}
	l.owned()
	if line := l.ignoredLine(); line != "" {
		l.content.Ignored = append(l.content.Ignored, line)
	}
	return &l.content, joinErrors(l.errs)
}

// Pods is All for callers that need pods only.
func Pods(file string, data []byte, o Options) ([]*manifests.Pod, error) {
	c, err := All(file, data, o)
	if err != nil {
		return nil, err
	}
	return c.Pods, nil
}

// loader collects what one input yields.
type loader struct {
	file    string
	source  string
	policy  policy.Policy
	author  Author
	strict  bool
	content manifests.Content
	ignored []ignoredKind
	errs    []*manifests.Error
	// objects counts documents and elements of lists; over is set once a limit is exceeded. unfolded is the size of documents with their
	// aliases expanded.
	objects  int
	over     bool
	unfolded int
	// made is how many pods the documents are and make.
	made amount
	// first holds the line at which each object of the input was first defined.
	first map[manifests.ObjectID]int
}

const utf8BOM = "\ufeff"

// checkBytes refuses inputs that cannot be looked at as documents at all.
func (l *loader) checkBytes(data []byte) error {
	bad := func(msg, hint string) error {
		return joinErrors([]*manifests.Error{{File: l.file, Msg: msg, Hint: hint}})
	}
	switch {
	case len(data) > document.MaxSize:
		return bad(fmt.Sprintf("the file has %d bytes, more than the %d MiB a manifest may have", len(data), document.MaxSize>>20), "split it")
	case len(bytes.TrimSpace(data)) == 0:
		return bad("it is empty", "add a Pod, or a comment if it is meant to be empty")
	case len(bytes.Trim(data, "\x00")) == 0:
		return bad("the file contains only zero bytes, as after a power cut", "write it again")
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return bad("the file is UTF-16", "save it as UTF-8")
	case !utf8.Valid(data):
		return l.notUTF8(data)
	}
	return nil
}

func (l *loader) notUTF8(data []byte) error {
	valid := 0
	for valid < len(data) {
		r, n := utf8.DecodeRune(data[valid:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		valid += n
	}
	line, column := document.LineColumn(data, valid)
	return joinErrors([]*manifests.Error{{
		File: l.file, Line: line, Column: column,
		Msg: fmt.Sprintf("the byte 0x%02x is not UTF-8", data[valid]), Hint: "save the file as UTF-8",
	}})
}

// add takes over a complete pod.
func (l *loader) add(pod *corev1.Pod, rejected *manifests.Rejection, line int) {
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"} // elements of a PodList may leave it out
	if l.isHook(pod, &manifests.Error{Pod: keyOf(pod), Line: line}) {
		return
	}
	p := &manifests.Pod{Object: pod, Origin: manifests.Origin{Source: l.source, File: l.file, Line: line}, Owner: takeOwner(pod, l.author), Rejected: rejected}
	key := p.Key()
	if msg := l.made.add(1, 0); msg != "" {
		l.errs = append(l.errs, &manifests.Error{File: l.file, Line: line, Pod: key.String(), Msg: msg, Hint: "split it"})
		return
	}
	if l.claim(manifests.ObjectID{Kind: "Pod", Namespace: key.Namespace, Name: key.Name}, "this pod", &manifests.Error{Pod: key.String(), Line: line}) {
		l.content.Pods = append(l.content.Pods, p)
	}
}

// owned drops what controllers of the same input make.
func (l *loader) owned() {
	c := &l.content
	var dropped []Owned
	c.Pods, c.Workloads, dropped = dropOwned(c.Pods, c.Workloads, l.errs)
	for _, o := range dropped {
		c.Notes = append(c.Notes, o.Note())
	}
	sortByPlace(c.Notes)
}

// addObject takes over a complete object.
func (l *loader) addObject(o *manifests.Object, info kinds.Info) {
	o.Owner = takeOwner(o.Object, l.author)
	id := o.ID()
	name := strings.TrimPrefix(id.String(), id.Kind+" ")
	switch {
	case !l.claim(id, "this "+id.Kind, &manifests.Error{Kind: id.Kind, Pod: name, Line: o.Origin.Line}):
	case info.Role == kinds.Workload && l.isHook(o.Object, &manifests.Error{Kind: id.Kind, Pod: name, Line: o.Origin.Line}):
	case info.Role == kinds.Workload:
		l.addWorkload(o, name)
	default:
		l.content.Objects = append(l.content.Objects, o)
	}
}

// addWorkload takes over a workload whose pods the input has room for.
func (l *loader) addWorkload(o *manifests.Object, name string) {
	if msg := l.made.add(manifests.MaxPods(o.Object), manifests.PodTemplate(o.Object).Size()); msg != "" {
		l.errs = append(l.errs, &manifests.Error{File: l.file, Line: o.Origin.Line, Kind: o.Kind, Pod: name, Field: countField(o.Object), Msg: msg, Hint: "split it"})
		return
	}
	l.content.Workloads = append(l.content.Workloads, o)
}

// HelmHook is the annotation of a document that Helm runs at a moment of an installation, or as a test, instead of installing it.
const HelmHook = "helm.sh/hook"

// isHook reports whether a Pod or workload is a hook of Helm that is not to run, and notes that with e, completed.
func (l *loader) isHook(obj metav1.Object, e *manifests.Error) bool {
	when := obj.GetAnnotations()[HelmHook]
	if when == "" || l.policy.HelmHooks || l.author != AuthorUser {
		return false
	}
	e.File = l.file
	e.Msg = fmt.Sprintf("not run: it is a hook of Helm (%s: %.40q); to run it, remove the annotation, or set helmHooks in the configuration", HelmHook, when)
	l.content.Notes = append(l.content.Notes, e)
	l.content.LeftOut = append(l.content.LeftOut, manifests.ObjectID{Kind: cmp.Or(e.Kind, "Pod"), Namespace: obj.GetNamespace(), Name: obj.GetName()})
	return true
}

// claim reports whether an identity is free in the input; if it is not, it completes and records e.
func (l *loader) claim(id manifests.ObjectID, what string, e *manifests.Error) bool {
	at, twice := l.first[id]
	if !twice {
		l.first[id] = e.Line
		return true
	}
	e.File, e.Field = l.file, "metadata.name"
	e.Msg = fmt.Sprintf("%s is already defined at line %d of the same input", what, at)
	e.Hint = "rename or remove one of them"
	l.errs = append(l.errs, e)
	return false
}

// fail takes over the problems of one document, in the order of their lines.
func (l *loader) fail(errs []*manifests.Error) {
	sortByPlace(errs)
	l.errs = append(l.errs, errs...)
}

func sortByPlace(errs []*manifests.Error) {
	slices.SortStableFunc(errs, func(a, b *manifests.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// joinErrors returns nil when there are none.
func joinErrors(errs []*manifests.Error) error {
	all := make([]error, len(errs))
	for i, e := range errs {
		all[i] = e
	}
	return errors.Join(all...)
}
