package decode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monopod/manifests/document"
	"monopod/manifests/kinds"
)

// ignoredKind is the documents of one kind that mean nothing here, and why.
type ignoredKind struct {
	kind, version, why string
	lines              []int
}

// ignore notes that a document means nothing here.
func (l *loader) ignore(it document.Item, kind, version, why string) {
	l.content.Missed = l.content.Missed || kinds.Matters(kind, version)
	i := slices.IndexFunc(l.ignored, func(k ignoredKind) bool { return k.kind == kind && k.version == version })
	if i < 0 {
		i = len(l.ignored)
		l.ignored = append(l.ignored, ignoredKind{kind: kind, version: version, why: why})
	}
	l.ignored[i].lines = append(l.ignored[i].lines, it.FirstLine())
}

// ignoredLine lists in one line what is ignored and why; empty if nothing is.
func (l *loader) ignoredLine() string {
	if len(l.ignored) == 0 {
		return ""
	}
	if k := l.ignored[0]; len(l.ignored) == 1 && len(k.lines) == 1 {
		return fmt.Sprintf("%s:%d: kind %s is ignored: %s", l.file, k.lines[0], l.nameOf(k), k.why)
	}
	var reasons []string
	kinds, documents := map[string][]string{}, 0
	for _, k := range l.ignored {
		if kinds[k.why] == nil {
			reasons = append(reasons, k.why)
		}
		kinds[k.why] = append(kinds[k.why], l.nameOf(k)+" at "+someOf(k.lines))
		documents += len(k.lines)
	}
	for i, why := range reasons {
		reasons[i] = strings.Join(kinds[why], ", ") + " (" + why + ")"
	}
	return fmt.Sprintf("%s: %d documents are ignored: %s", l.file, documents, strings.Join(reasons, "; "))
}

// nameOf is a kind, with its apiVersion when there is another one of that name.
func (l *loader) nameOf(k ignoredKind) string {
	_, known := kinds.Known().ByKind[k.kind]
	if known || k.kind == "Pod" || strings.Contains(kinds.GroupOf(k.version), ".") && !slices.Contains(kinds.Known().Names, k.kind) ||
		slices.ContainsFunc(l.ignored, func(o ignoredKind) bool { return o.kind == k.kind && o.version != k.version }) {
		return k.kind + " of " + k.version
	}
	return k.kind
}

// someOf lists the first lines.
func someOf(lines []int) string {
	const most = 3
	var all []string
	for _, n := range lines[:min(len(lines), most)] {
		all = append(all, strconv.Itoa(n))
	}
	text := "line " + strings.Join(all, ", ")
	if len(all) > 1 {
		text = "lines " + strings.Join(all, ", ")
	}
	if more := len(lines) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
