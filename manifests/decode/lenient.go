package decode

import (
	"encoding/json"

	"monopod/internal/quantity"
	"monopod/manifests/document"
	"monopod/manifests/kinds"
	"monopod/manifests/lenient"
)

// lenientObject decodes a refused object again after lenient.Rewrite. Notes record the changes. Remaining errors replace those from before
// on.
func (l *loader) lenientObject(data []byte, it document.Item, before int) {
	if l.over || parts(data, maxOwnParts) > maxOwnParts {
		return
	}
	var m map[string]any
	if quantity.Unmarshal(data, &m) != nil || m == nil {
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
