package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"monopod/internal/quantity"
	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/manifests/document"
	"monopod/manifests/explain"
	"monopod/manifests/fates"
	"monopod/manifests/kinds"
	"monopod/manifests/policy"
	"monopod/manifests/validate"
)

// document decodes one document. A good pod takes the short path: one YAML parse and one strict JSON decode, as in an API server. Only
// other kinds and errors are inspected in detail.
func (l *loader) document(d document.Document) {
	it := document.Item{Source: &document.Source{File: l.file, Doc: d}}
	if !l.next(it) {
		return
	}
	data, err := d.Data, document.CheckLimits(d, &l.unfolded)
	var twice error
	if !d.JSON && err == nil {
		if data, twice = it.StrictJSON(); twice != nil {
			it.Twice = true
			data, err = yaml.YAMLToJSON(d.Data)
		}
	}
	before := len(l.errs)
	defer func() { l.explainSpaces(before, it) }()
	if err != nil {
		l.fail([]*manifests.Error{explain.SyntaxError(it.Source, err)})
		return
	}
	if it.Twice && len(it.Duplicates()) == 0 {
		l.fail([]*manifests.Error{explain.SyntaxError(it.Source, twice)})
	}
	if parts(data, maxParts) > maxParts {
		l.fail(it.Errors("", []document.Problem{{Msg: fmt.Sprintf("it has more than %d mappings", maxParts), Hint: "split it"}}))
		return
	}
	if string(data) != "null" {
		l.object(data, it)
	}
}

// explainSpaces puts a space that is none before the mistakes that follow from it.
func (l *loader) explainSpaces(before int, it document.Item) {
	if len(l.errs) <= before || l.over {
		return
	}
	if e := it.ForeignSpaceError(); e != nil {
		l.errs = slices.Insert(l.errs, before, e)
	}
}

// object decodes one object of any kind from its JSON: as Kubernetes does, and what that refuses as podman does, unless that is not wanted.
func (l *loader) object(data []byte, it document.Item) {
	before := len(l.errs)
	if l.strictObject(data, it); len(l.errs) > before && l.author == AuthorUser && !l.strict {
		l.lenientObject(data, it, before)
	}
}

// strictObject decodes one object as Kubernetes does.
func (l *loader) strictObject(data []byte, it document.Item) {
	if parts(data, maxOwnParts) > maxOwnParts && !l.mayBeLarge(data, it) {
		return
	}
	var strict []error
	var err error
	tried := it.MayBePod(data)
	if tried {
		var pod corev1.Pod
		strict, err = quantity.UnmarshalStrict(data, &pod)
		if err == nil && len(strict) == 0 && !it.Twice && it.IsPod(pod.TypeMeta) {
			l.check(&pod, it)
			return
		}
	}
	var value any
	if err := quantity.Unmarshal(data, &value); err != nil {
		l.fail([]*manifests.Error{explain.SyntaxError(it.Source, err)})
		return
	}
	m, ok := value.(map[string]any)
	if !ok {
		l.fail(it.Errors("", []document.Problem{notAnObject(value, it)}))
		return
	}
	kind, version := it.Complete(m)
	switch {
	case it.IsPod(metav1.TypeMeta{Kind: kind, APIVersion: version}) && m["kind"] != "" && m["apiVersion"] != "":
		if cutStatus(m, reflect.TypeFor[corev1.Pod]()) {
			strict, err = strictly(m)
		} else if !tried {
			strict, err = quantity.UnmarshalStrict(data, &corev1.Pod{})
		}
		l.podObject(m, it, append(strict, err))
	case isList(kind, version):
		l.listObject(data, m, it)
	default:
		l.otherObject(m, it, kind, version)
	}
}

func isList(kind, version string) bool {
	_, ok := kinds.ListElement(kind, version)
	return ok
}

// notAnObject is about a document, or an element, that is something else.
func notAnObject(value any, it document.Item) document.Problem {
	p := document.Problem{Path: it.Prefix, Msg: "expected an object like a Pod, found " + explain.Describe(value)}
	if _, isList := value.([]any); isList {
		p.Hint = kinds.ListHint
	}
	return p
}

// otherObject decodes an object that is no Pod and no list.
func (l *loader) otherObject(m map[string]any, it document.Item, kind, version string) {
	known := kinds.Known()
	if info, ok := known.ByKind[kind]; ok && info.Version == version {
		l.typedObject(m, it, info)
		return
	}
	if note, ok := known.Ignores(kind, version); ok {
		l.ignore(it, kind, version, note)
		return
	}
	pod := ""
	if kind == "" || kind == "Pod" {
		pod = podName(m)
	}
	errs := it.Errors(pod, append(it.Duplicates(), kinds.Refuse(m, it)))
	for _, e := range errs {
		e.Kindless = kind == ""
	}
	l.fail(errs)
}

// typedObject decodes an object that is read besides Pods. Mistakes are cut out as in podObject.
func (l *loader) typedObject(m map[string]any, it document.Item, info kinds.Info) {
	obj := info.New()
	kind, _ := m["kind"].(string)
	it.Kind, it.Secret = kind, kind == "Secret"
	cutStatus(m, reflect.TypeOf(obj).Elem())
	found := append(explain.InspectAs(m, it, reflect.TypeOf(obj)), it.Duplicates()...)
	data, err := json.Marshal(m)
	if err == nil {
		err = quantity.Unmarshal(data, obj)
	}
	if err != nil {
		if len(found) == 0 {
			found = append(found, document.Problem{Path: it.Prefix, Msg: "it cannot be decoded"})
		}
		l.fail(it.Errors(objectName(m, info), found))
		return
	}
	dropObserved(obj, l.author)
	defaults.Object(obj, info.Cluster)
	for _, e := range validate.Object(obj, info.Cluster) {
		if p := fromValidation(e, it, nil); !masked(p.Path, found) && !explain.AlreadyReported(e, p.Path, found) {
			found = append(found, p)
		}
	}
	problems, notes := l.templateProblems(obj, it)
	for _, p := range append(problems, l.objectRefusals(obj, it)...) {
		if !masked(p.Path, found) {
			found = append(found, p)
		}
	}
	if len(found) > 0 {
		l.fail(it.Errors(objectName(m, info), found))
		return
	}
	l.note(it.Errors(objectName(m, info), append(notes, renamed(&l.content, it)...)))
	l.addObject(&manifests.Object{Object: asReplicaSet(obj), Kind: kind, Origin: manifests.Origin{Source: l.source, File: l.file, Line: it.FirstLine()}}, info)
}

// objectName is podName for any kind.
func objectName(m map[string]any, info kinds.Info) string {
	name := podName(m)
	if info.Cluster {
		_, name, _ = strings.Cut(name, "/")
	}
	return name
}

// podObject decodes a pod with errors: each is reported and cut out, and the rest is validated too, so that all problems are reported at
// once. complaints are the errors of the decoder.
func (l *loader) podObject(m map[string]any, it document.Item, complaints []error) {
	twice := it.Duplicates()
	found := append(explain.Inspect(m, it), twice...)
	nothing := len(found) == 0
	for _, err := range complaints {
		var at kjson.FieldError
		switch {
		case err == nil:
		case errors.As(err, &at) && strings.HasPrefix(err.Error(), "duplicate field"):
			if len(twice) == 0 {
				found = append(found, document.Problem{Path: it.Path(at.FieldPath()), Msg: "duplicate field"})
			}
		case nothing:
			// Keep errors that only the decoder finds, in its words.
			found = append(found, document.Problem{Path: it.Prefix, Msg: strings.TrimPrefix(err.Error(), "json: ")})
		}
	}
	data, err := json.Marshal(m)
	var pod corev1.Pod
	if err == nil {
		err = quantity.Unmarshal(data, &pod)
	}
	if err != nil {
		l.fail(it.Errors(podName(m), found))
		return
	}
	l.check(&pod, it, found...)
}

// listObject decodes the items of a List or PodList.
func (l *loader) listObject(data []byte, m map[string]any, it document.Item) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	strict, err := quantity.UnmarshalStrict(data, &list)
	var found []document.Problem
	if err != nil || len(strict) > 0 || it.Twice {
		found = append(explain.InspectList(m, it), it.Duplicates()...)
	}
	if len(found) == 0 && (err != nil || len(strict) > 0) {
		found = append(found, document.Problem{Path: it.Prefix, Msg: errors.Join(append(strict, err)...).Error()})
	}
	l.fail(it.Errors("", slices.DeleteFunc(found, func(p document.Problem) bool { return strings.HasPrefix(p.Path, it.Path("items[")) })))
	if it.Nested >= maxNested && len(list.Items) > 0 {
		l.fail(it.Errors("", []document.Problem{{Path: it.Prefix, Msg: tooDeep}}))
		return
	}
	element, _ := kinds.ListElement(list.Kind, list.APIVersion)
	for i, value := range list.Items {
		one := document.Item{
			Source: it.Source, Prefix: fmt.Sprintf("%s[%d]", it.Path("items"), i), Element: element, Twice: it.Twice, Nested: it.Nested + 1,
		}
		if !l.next(one) {
			return
		}
		l.object(value, one)
	}
}

// renamed notes the keys that are not what was written.
func renamed(c *manifests.Content, it document.Item) []document.Problem {
	keys := it.RenamedKeys()
	c.Missed = c.Missed || len(keys) > 0
	return keys
}

// note takes over remarks about a document that is accepted, in the order of their lines.
func (l *loader) note(notes []*manifests.Error) {
	sortByPlace(notes)
	l.content.Notes = append(l.content.Notes, notes...)
}

// mayBeLarge reports whether an object with very many mappings is a list, whose elements are counted one by one. Any other object is
// recorded as ignored or as an error.
func (l *loader) mayBeLarge(data []byte, it document.Item) bool {
	var t metav1.TypeMeta
	if quantity.Unmarshal(data, &t) == nil && isList(t.Kind, t.APIVersion) {
		return true
	}
	t = it.TypeOf(t)
	if note, ok := kinds.Known().Ignores(t.Kind, t.APIVersion); ok {
		l.ignore(it, t.Kind, t.APIVersion, note)
	} else {
		l.fail(it.Errors("", []document.Problem{{Path: it.Prefix, Msg: fmt.Sprintf("it has more than %d mappings", maxOwnParts)}}))
	}
	return false
}

// check refuses, defaults and validates a decoded pod, and takes it over when nothing is wrong with it.
func (l *loader) check(pod *corev1.Pod, it document.Item, found ...document.Problem) {
	dropObserved(pod, l.author)
	token := defuseTokenVolume(&pod.Spec)
	grant(l, &pod.ObjectMeta, pod.Namespace)
	refused, notes := fates.Refusals(pod, it)
	identify(l.author, pod)
	found = append(found, refused...)
	defaults.Pod(pod)
	for _, e := range validate.Pod(pod) {
		if p := fromValidation(e, it, &pod.Spec); !masked(p.Path, found) && !explain.AlreadyReported(e, p.Path, found) && !explain.Follows(e, &pod.Spec) {
			found = append(found, p)
		}
	}
	defaults.AppArmor(pod)
	ofPods, rejected := l.policy.OfPods(pod)
	if rejected != nil && rejected.Reason == policy.ReasonPodOS {
		found = slices.DeleteFunc(found, func(p document.Problem) bool { return p.Path == it.Path("spec.os.name") })
	}
	found = slices.Concat(found, l.notHere(ofPods, pod, it), l.policy.Outside(l.source, pod.Namespace, it))
	if len(found) > 0 {
		l.fail(it.Errors(keyOf(pod), found))
		return
	}
	token.drop(&pod.Spec)
	l.note(it.Errors(keyOf(pod), slices.Concat(notes, token.notes(manifests.APIAccess(pod.Annotations), it), renamed(&l.content, it))))
	addToken(l.author, pod)
	l.add(pod, rejected, it.FirstLine())
}

// notHere are the problems that a valid pod has on this node.
func (l *loader) notHere(by policy.Policy, pod *corev1.Pod, it document.Item) []document.Problem {
	found := slices.Concat(by.Violations(pod, it), apiAccess(l, pod, it), l.imageNames(&pod.Spec, it))
	if len(pod.Spec.Overhead) > 0 && pod.Spec.RuntimeClassName == nil {
		found = append(found, document.Problem{Path: it.Path("spec.overhead"), Msg: manifests.NoOverhead})
	}
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			found = append(found, fates.RelativePath(h.Path, it.Path(fmt.Sprintf("spec.volumes[%d].hostPath.path", i)))...)
		}
	}
	return found
}

// masked reports whether a problem of the field is already known; its value was cut out.
func masked(path string, found []document.Problem) bool {
	for _, p := range found {
		if document.Within(path, p.Path) && p.Path != "" {
			return true
		}
	}
	return false
}

// keyOf is the name of a pod in messages, empty while it has none.
func keyOf(pod *corev1.Pod) string {
	if pod.Name == "" {
		return ""
	}
	return manifests.Key{Namespace: pod.Namespace, Name: pod.Name}.String()
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
	return manifests.Key{Namespace: namespace, Name: name}.String()
}

// fromValidation turns an error of the API's kind into a problem. spec is that of the pod, or nil.
func fromValidation(e *field.Error, it document.Item, spec *corev1.PodSpec) document.Problem {
	p := document.Problem{Path: it.Path(e.Field), Msg: e.ErrorBody(), Hint: explain.Advice(e, spec), Type: e.Type}
	if e.Field == "metadata.name" && e.Type == field.ErrorTypeRequired {
		p.Msg = "Required value" // the API server adds that a generateName would do
	}
	if e.Field == "spec.selector" && e.Type == field.ErrorTypeRequired && it.Kind == "ReplicationController" {
		p.Hint = "set spec.template.metadata.labels, as in labels: {app: web}: they are the selector, too"
	}
	return p
}
