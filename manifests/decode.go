package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// problem is a finding about one field of one document, before file and position are known.
type problem struct {
	// path is the field's path from the root of the document.
	path string
	msg  string
	hint string
	// line and column are set where they are known without looking for path.
	line, column int
	// atKey says that the field itself is the problem, not its value.
	atKey bool
}

// document decodes one document. The way of a good pod is short: one YAML parse, one strict JSON decode, as
// the API server does them. Only what is something else or has a mistake is looked at in detail.
func (l *loader) document(d document) {
	it := item{source: &source{file: l.file, doc: d}}
	if !l.next(it) {
		return
	}
	data, err := d.data, examine(d, &l.unfolded)
	var twice error
	if !d.json && err == nil {
		if data, twice = it.strictJSON(); twice != nil {
			it.twice = true
			data, err = yaml.YAMLToJSON(d.data)
		}
	}
	before := len(l.errs)
	defer func() { l.explainSpaces(before, it) }()
	if err != nil {
		l.fail([]*Error{it.syntaxError(err)})
		return
	}
	if it.twice && len(it.duplicates()) == 0 {
		l.fail([]*Error{it.syntaxError(twice)})
	}
	if parts(data, maxParts) > maxParts {
		l.fail(it.errors("", []problem{{msg: fmt.Sprintf("it has more than %d mappings", maxParts), hint: "split it"}}))
		return
	}
	if string(data) != "null" {
		l.object(data, it)
	}
}

// explainSpaces puts a space that is none before the mistakes that follow from it.
func (l *loader) explainSpaces(before int, it item) {
	if len(l.errs) <= before || l.over {
		return
	}
	if e := it.foreignSpaceError(); e != nil {
		l.errs = slices.Insert(l.errs, before, e)
	}
}

// item is one object within a document: the document itself or an element of a list.
type item struct {
	*source
	// prefix is the path of the object in the document, empty or like "items[3]".
	prefix string
	// element is the type that an element of a list need not name: that of a Pod in a PodList.
	element metav1.TypeMeta
	// twice says that some keys of the document stand twice.
	twice bool
	// nested is how many lists it is in.
	nested int
	// kind is the kind of an object that is no Pod.
	kind string
	// secret says that values must not be shown.
	secret bool
}

// duplicates returns the keys of the object that stand twice.
func (it item) duplicates() []problem {
	var found []problem
	for _, p := range it.allDuplicates() {
		if within(p.path, it.prefix) {
			found = append(found, p)
		}
	}
	return found
}

// path extends the path of the object.
func (it item) path(field string) string {
	if it.prefix == "" || field == "" {
		return it.prefix + field
	}
	return it.prefix + "." + field
}

// isPod says that a type is that of a Pod here.
func (it item) isPod(t metav1.TypeMeta) bool {
	t = it.typeOf(t)
	return t.Kind == "Pod" && t.APIVersion == "v1"
}

// mayBePod says that an object in JSON is worth decoding as a Pod: it has that word somewhere, or is in a list of them. Who writes the
// word with escapes is found to be a Pod a little later.
func (it item) mayBePod(data []byte) bool {
	return it.element.Kind == "Pod" || bytes.Contains(data, []byte(`"Pod"`))
}

// typeOf completes a type with that of the list.
func (it item) typeOf(t metav1.TypeMeta) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: cmp.Or(t.Kind, it.element.Kind), APIVersion: cmp.Or(t.APIVersion, it.element.APIVersion)}
}

// object decodes one object of any kind from its JSON: as Kubernetes does, and what that refuses as podman does.
func (l *loader) object(data []byte, it item) {
	before := len(l.errs)
	if l.strictObject(data, it); len(l.errs) > before && l.author == AuthorUser {
		l.lenientObject(data, it, before)
	}
}

// strictObject decodes one object as Kubernetes does.
func (l *loader) strictObject(data []byte, it item) {
	if parts(data, maxOwnParts) > maxOwnParts && !l.mayBeLarge(data, it) {
		return
	}
	var strict []error
	var err error
	tried := it.mayBePod(data)
	if tried {
		var pod corev1.Pod
		strict, err = kjson.UnmarshalStrict(data, &pod)
		if err == nil && len(strict) == 0 && !it.twice && it.isPod(pod.TypeMeta) {
			l.check(&pod, it)
			return
		}
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &value); err != nil {
		l.fail([]*Error{it.syntaxError(err)})
		return
	}
	m, ok := value.(map[string]any)
	if !ok {
		l.fail(it.errors("", []problem{notAnObject(value, it)}))
		return
	}
	kind, version := it.complete(m)
	switch {
	case it.isPod(metav1.TypeMeta{Kind: kind, APIVersion: version}) && m["kind"] != "" && m["apiVersion"] != "":
		if cutStatus(m, reflect.TypeFor[corev1.Pod]()) {
			strict, err = strictly(m)
		} else if !tried {
			strict, err = kjson.UnmarshalStrict(data, &corev1.Pod{})
		}
		l.podObject(m, it, append(strict, err))
	case isList(kind, version):
		l.listObject(data, m, it)
	default:
		l.otherObject(m, it, kind, version)
	}
}

func isList(kind, version string) bool {
	_, ok := listElement(kind, version)
	return ok
}

// notAnObject is about a document, or an element, that is something else.
func notAnObject(value any, it item) problem {
	p := problem{path: it.prefix, msg: "expected an object like a Pod, found " + describe(value)}
	if _, isList := value.([]any); isList {
		p.hint = listHint
	}
	return p
}

// complete fills in the type of an element of a list, and returns it.
func (it item) complete(m map[string]any) (kind, version string) {
	for key, of := range map[string]string{"kind": it.element.Kind, "apiVersion": it.element.APIVersion} {
		if was, written := m[key]; of != "" && (!written || was == nil) {
			m[key] = of
		}
	}
	kind, _ = m["kind"].(string)
	version, _ = m["apiVersion"].(string)
	return kind, version
}

// otherObject decodes an object that is no Pod and no list.
func (l *loader) otherObject(m map[string]any, it item, kind, version string) {
	known := knownKinds()
	if info, ok := known.byKind[kind]; ok && info.version == version {
		l.typedObject(m, it, info)
		return
	}
	if note, ok := known.ignores(kind, version); ok {
		l.ignore(it, kind, version, note)
		return
	}
	pod := ""
	if kind == "" || kind == "Pod" {
		pod = podName(m)
	}
	errs := it.errors(pod, append(it.duplicates(), refuseKind(m, it)))
	for _, e := range errs {
		e.kindless = kind == ""
	}
	l.fail(errs)
}

// typedObject decodes an object that is read besides Pods. Mistakes are cut out as in podObject.
func (l *loader) typedObject(m map[string]any, it item, info kindInfo) {
	obj := info.make()
	kind, _ := m["kind"].(string)
	it.kind, it.secret = kind, kind == "Secret"
	cutStatus(m, reflect.TypeOf(obj).Elem())
	found := append(inspectAs(m, it, reflect.TypeOf(obj)), it.duplicates()...)
	data, err := json.Marshal(m)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
	}
	if err != nil {
		if len(found) == 0 {
			found = append(found, problem{path: it.prefix, msg: "it cannot be decoded"})
		}
		l.fail(it.errors(objectName(m, info), found))
		return
	}
	dropObserved(obj, l.author)
	defaultObject(obj, info)
	for _, e := range validateObject(obj, info) {
		if p := fromValidation(e, it, nil); !masked(p.path, found) && !explained(e, p.path, found) {
			found = append(found, p)
		}
	}
	problems, notes := l.templateProblems(obj, it)
	for _, p := range append(problems, l.objectRefusals(obj, it)...) {
		if !masked(p.path, found) {
			found = append(found, p)
		}
	}
	if len(found) > 0 {
		l.fail(it.errors(objectName(m, info), found))
		return
	}
	l.note(it.errors(objectName(m, info), append(notes, it.booleanKeys(m)...)))
	l.addObject(&Object{Object: asReplicaSet(obj), Kind: kind, Origin: Origin{Source: l.source, File: l.file, Line: it.firstLine()}}, info)
}

// objectName is podName for any kind.
func objectName(m map[string]any, info kindInfo) string {
	name := podName(m)
	if info.cluster {
		_, name, _ = strings.Cut(name, "/")
	}
	return name
}

// podObject decodes a pod with mistakes: each is reported and cut out, and what is left is checked too, so that
// all problems are seen at once. complaints are what the decoder had to say about it.
func (l *loader) podObject(m map[string]any, it item, complaints []error) {
	twice := it.duplicates()
	found := append(inspect(m, it), twice...)
	nothing := len(found) == 0
	for _, err := range complaints {
		var at kjson.FieldError
		switch {
		case err == nil:
		case errors.As(err, &at) && strings.HasPrefix(err.Error(), "duplicate field"):
			if len(twice) == 0 {
				found = append(found, problem{path: it.path(at.FieldPath()), msg: "duplicate field"})
			}
		case nothing:
			// The decoder knows more than we look for: say what it says.
			found = append(found, problem{path: it.prefix, msg: strings.TrimPrefix(err.Error(), "json: ")})
		}
	}
	data, err := json.Marshal(m)
	var pod corev1.Pod
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &pod)
	}
	if err != nil {
		l.fail(it.errors(podName(m), found))
		return
	}
	l.check(&pod, it, found...)
}

// listObject decodes the items of a List or PodList.
func (l *loader) listObject(data []byte, m map[string]any, it item) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	strict, err := kjson.UnmarshalStrict(data, &list)
	var found []problem
	if err != nil || len(strict) > 0 || it.twice {
		found = append(inspectList(m, it), it.duplicates()...)
	}
	if len(found) == 0 && (err != nil || len(strict) > 0) {
		found = append(found, problem{path: it.prefix, msg: errors.Join(append(strict, err)...).Error()})
	}
	l.fail(it.errors("", slices.DeleteFunc(found, func(p problem) bool { return strings.HasPrefix(p.path, it.path("items[")) })))
	if it.nested >= maxNested && len(list.Items) > 0 {
		l.fail(it.errors("", []problem{{path: it.prefix, msg: tooDeep}}))
		return
	}
	element, _ := listElement(list.Kind, list.APIVersion)
	for i, value := range list.Items {
		one := item{
			source: it.source, prefix: fmt.Sprintf("%s[%d]", it.path("items"), i), element: element, twice: it.twice, nested: it.nested + 1,
		}
		if !l.next(one) {
			return
		}
		l.object(value, one)
	}
}

// note takes over remarks about a document that is accepted, in the order of their lines.
func (l *loader) note(notes []*Error) {
	sortByPlace(notes)
	l.content.Notes = append(l.content.Notes, notes...)
}

// mayBeLarge says that an object with very many mappings is a list, whose elements are counted each for itself. Else it takes
// note of it: as one that means nothing here, or as a mistake.
func (l *loader) mayBeLarge(data []byte, it item) bool {
	var t metav1.TypeMeta
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &t) == nil && isList(t.Kind, t.APIVersion) {
		return true
	}
	t = it.typeOf(t)
	if note, ok := knownKinds().ignores(t.Kind, t.APIVersion); ok {
		l.ignore(it, t.Kind, t.APIVersion, note)
	} else {
		l.fail(it.errors("", []problem{{path: it.prefix, msg: fmt.Sprintf("it has more than %d mappings", maxOwnParts)}}))
	}
	return false
}

// check refuses, defaults and validates a decoded pod, and takes it over when nothing is wrong with it.
func (l *loader) check(pod *corev1.Pod, it item, found ...problem) {
	dropObserved(pod, l.author)
	token := defuseTokenVolume(&pod.Spec)
	refused, notes := refusals(pod, it)
	found = append(found, refused...)
	setDefaults(pod)
	for _, e := range validatePod(pod) {
		if p := fromValidation(e, it, &pod.Spec); !masked(p.path, found) && !explained(e, p.path, found) {
			found = append(found, p)
		}
	}
	appArmorFields(pod)
	found = append(found, l.notHere(pod, it)...)
	if len(found) > 0 {
		l.fail(it.errors(keyOf(pod), found))
		return
	}
	token.drop(&pod.Spec)
	l.note(it.errors(keyOf(pod), append(notes, token.notes(it)...)))
	l.add(pod, it.firstLine())
}

// notHere are the problems that a valid pod has on this node.
func (l *loader) notHere(pod *corev1.Pod, it item) []problem {
	found := l.policy.violations(pod, it)
	if len(pod.Spec.Overhead) > 0 && pod.Spec.RuntimeClassName == nil {
		found = append(found, problem{path: it.path("spec.overhead"), msg: noOverhead})
	}
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			found = append(found, relativePath(h.Path, it.path(fmt.Sprintf("spec.volumes[%d].hostPath.path", i)))...)
		}
	}
	return found
}

// masked says that a field has been reported already, with the value that was cut out of it.
func masked(path string, found []problem) bool {
	for _, p := range found {
		if within(path, p.path) && p.path != "" {
			return true
		}
	}
	return false
}

// within says that path is root or a field inside it.
func within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (root == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// errors turns problems into errors with positions.
func (it item) errors(pod string, problems []problem) []*Error {
	errs := make([]*Error, 0, len(problems))
	for _, p := range problems {
		e := &Error{File: it.file, Line: p.line, Column: p.column, Kind: it.kind, Pod: pod, Field: p.path, Msg: p.msg, Hint: p.hint}
		if e.Line == 0 {
			e.Line, e.Column = it.position(p)
		}
		errs = append(errs, e)
	}
	return errs
}

// keyOf is the name of a pod in messages, empty while it has none.
func keyOf(pod *corev1.Pod) string {
	if pod.Name == "" {
		return ""
	}
	return Key{Namespace: pod.Namespace, Name: pod.Name}.String()
}

// podName is keyOf for an object that could not be decoded.
func podName(m map[string]any) string {
	meta, _ := m["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if name == "" {
		return ""
	}
	namespace, _ := meta["namespace"].(string)
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	return Key{Namespace: namespace, Name: name}.String()
}

// firstLine is the line at which the object starts.
func (it item) firstLine() int {
	if it.prefix != "" {
		line, _ := it.position(problem{path: it.prefix})
		return line
	}
	line := it.doc.line
	for rest := it.doc.data; len(rest) > 0; line++ {
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
