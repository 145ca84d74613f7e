package fates

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/schema"
)

// fate is how a field of a manifest is treated.
type fate int

const (
	// enforced: the field works as in Kubernetes.
	enforced fate = iota + 1
	// harmless: the field is accepted and has no effect on a single machine; the note has the reason.
	harmless
	// warned: the field is accepted with a warning, because it has no effect on a single machine, though its author may rely on one; the note
	// has the reason.
	warned
	// refused: a manifest that sets the field is not accepted; the note has the reason.
	refused
)

// String is the word for a fate in docs/fields.md.
func (f fate) String() string {
	return [...]string{"", "enforced", "harmless", "warned", "refused"}[f]
}

// fieldFate is one line of the table in fates.go. It speaks for the field at path and for all fields below it
// that have no line of their own.
//
// A path is written like spec.containers[].env[].name: "[]" stands for any element of a list, "{}" for any key of
// a map, "{cpu}" for that key and "{cdi.k8s.io/*}" for keys of that beginning.
type fieldFate struct {
	path string
	fate fate
	// note is the reason (harmless, warned, refused) or the extent (enforced).
	note string
	// only lists the values that are not refused, if not all are. Those in later are refused, or all others if later is empty;
	// other is the reason. A value in neither list is not a value of the field at all, which validation reports.
	only  []string
	later []string
	other string
	// hint is what to use instead of a refused field or value.
	hint string
	// remark is the note for the author of a manifest that sets a field to a value that looks effective; quiet lists the values without one.
	remark string
	quiet  []string
	// elsewhere is set if manifests/warn has the warning, because it depends on other pods.
	elsewhere bool
	// same is the path of the line that this one repeats, for init containers.
	same string
}

// allows reports whether the line does not refuse a value.
func (f *fieldFate) allows(v reflect.Value) bool {
	value := scalar(v)
	switch {
	case f.only == nil || slices.ContainsFunc(f.only, func(only string) bool { return isOneOf(only, value) }):
		return true
	case f.later != nil:
		return !slices.Contains(f.later, value)
	}
	return false
}

// isOneOf reports whether a value matches one of the table, which may end with a star.
func isOneOf(only, value string) bool {
	if prefix, ok := strings.CutSuffix(only, "*"); ok {
		return strings.HasPrefix(value, prefix)
	}
	return value == only
}

// fieldNode is a field of a Pod, or any element or key of one, with the line of the table that speaks for it.
type fieldNode struct {
	path string
	// own is the line of the table with exactly this path, nil when there is none.
	own *fieldFate
	// fate is own or the line of the nearest field around this one; nil for a hole in the table.
	fate *fieldFate
	// children are the fields of a struct, the elements of a list or the keys of a map.
	children []*fieldNode
	// name is the field's name, or the key in case of a map; index finds it in its struct.
	name  string
	index []int
	typ   reflect.Type
	// mixed is set if a field below has a line of its own.
	mixed bool
}

// podFields is the tree of all fields of a Pod. It is the same for ever and costs a few milliseconds to build.
var podFields = sync.OnceValue(func() *fieldNode {
	lines := map[string]*fieldFate{}
	table := fates()
	for i := range table {
		lines[table[i].path] = &table[i]
	}
	root := &fieldNode{typ: reflect.TypeFor[corev1.Pod]()}
	root.grow(lines, nil)
	return root
})

// grow finds the fields below f.
func (f *fieldNode) grow(lines map[string]*fieldFate, around *fieldFate) {
	f.own = lines[f.path]
	f.fate = around
	if f.own != nil {
		f.fate = f.own
	}
	t := f.typ
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case schema.IsLeaf(t):
		return
	case t.Kind() == reflect.Slice:
		f.add("[]", "", nil, t.Elem())
	case t.Kind() == reflect.Map:
		for _, path := range slices.Sorted(maps.Keys(lines)) {
			key, ok := strings.CutPrefix(path, f.path+"{")
			if key, isKey := strings.CutSuffix(key, "}"); ok && isKey && key != "" {
				f.add("{"+key+"}", key, nil, t.Elem())
			}
		}
		f.add("{}", "", nil, t.Elem())
	default:
		for _, inner := range schema.Fields(t) {
			name := inner.Name
			if f.path != "" {
				name = "." + name
			}
			f.add(name, inner.Name, inner.Index, inner.Type)
		}
	}
	for _, c := range f.children {
		c.grow(lines, f.fate)
		f.mixed = f.mixed || c.own != nil || c.mixed
	}
}

func (f *fieldNode) add(suffix, name string, index []int, t reflect.Type) {
	f.children = append(f.children, &fieldNode{path: f.path + suffix, name: name, index: index, typ: t})
}

// deviceKinds is the key that stands for resources which are kinds of devices.
const deviceKinds = "<vendor>/<class>"

// key returns the field for a key of a map.
func (f *fieldNode) key(key string) *fieldNode {
	var best *fieldNode
	for _, c := range f.children {
		prefix, isPrefix := strings.CutSuffix(c.name, "*")
		switch {
		case c.name == key, c.name == deviceKinds && manifests.IsDeviceKind(corev1.ResourceName(key)):
			return c
		case c.name == "" && best == nil, isPrefix && strings.HasPrefix(key, prefix):
			best = c
		}
	}
	return best
}

// leaves calls visit for each field below f that has no fields below it.
func (f *fieldNode) leaves(visit func(*fieldNode)) {
	if len(f.children) == 0 {
		visit(f)
		return
	}
	for _, c := range f.children {
		c.leaves(visit)
	}
}
