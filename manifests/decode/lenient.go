package decode

import (
	"encoding/json"

	kjson "sigs.k8s.io/json"

	"monopod/manifests/document"
	"monopod/manifests/kinds"
	"monopod/manifests/lenient"
)

// lenientObject reads an object again that has been refused with the errors from before on, with what is unambiguous in it written as
// Kubernetes wants it. Notes say what that is. What is still wrong with it takes the place of those errors.
func (l *loader) lenientObject(data []byte, it document.Item, before int) {
	if l.over || parts(data, maxOwnParts) > maxOwnParts {
		return
	}
	var m map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &m) != nil || m == nil {
		return
	}
	kind, version := it.Complete(m)
	info, known := kinds.Known().ByKind[kind]
	name := objectName(m, info)
	switch {
	case kind == "Pod" && version == "v1":
	case known && info.Version == version:
		it.Kind = kind
	default:
		return
	}
	changes := lenient.Rewrite(m, kind, func(path string) string { return it.Scalar(it.Path(path)) })
	data, err := json.Marshal(m)
	if err != nil || len(changes) == 0 {
		return
	}
	l.errs = l.errs[:before]
	if l.strictObject(data, it); len(l.errs) > before {
		return
	}
	notes := make([]document.Problem, len(changes))
	for i, c := range changes {
		notes[i] = document.Problem{Path: it.Path(c.Path), Msg: c.Msg}
	}
	l.note(it.Errors(name, notes))
}
