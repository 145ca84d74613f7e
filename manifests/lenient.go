package manifests

import (
	"encoding/json"
	"strings"

	kjson "sigs.k8s.io/json"

	"monopod/manifests/lenient"
)

// lenientObject reads an object again that has been refused with the errors from before on, with what is unambiguous in it written as
// Kubernetes wants it. Notes say what that is. What is still wrong with it takes the place of those errors.
func (l *loader) lenientObject(data []byte, it item, before int) {
	if l.over || parts(data, maxOwnParts) > maxOwnParts {
		return
	}
	var m map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &m) != nil || m == nil {
		return
	}
	kind, version := it.complete(m)
	info, known := knownKinds().byKind[kind]
	name := objectName(m, info)
	switch {
	case kind == "Pod" && version == "v1":
	case known && info.version == version:
		it.kind = kind
	default:
		return
	}
	changes := lenient.Rewrite(m, kind, func(path string) string { return it.scalar(it.path(path)) })
	data, err := json.Marshal(m)
	if err != nil || len(changes) == 0 {
		return
	}
	l.errs = l.errs[:before]
	if l.strictObject(data, it); len(l.errs) > before {
		return
	}
	notes := make([]problem, len(changes))
	for i, c := range changes {
		notes[i] = problem{path: it.path(c.Path), msg: c.Msg}
	}
	l.note(it.errors(name, notes))
}

// newerPolicy says that a value is podman's policy to pull an image if the registry has a newer one.
func newerPolicy(value string) bool {
	return strings.EqualFold(value, "newer") || strings.EqualFold(value, "ifnewer")
}
