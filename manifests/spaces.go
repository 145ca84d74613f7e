package manifests

import (
	"slices"

	"monopod/manifests/spaces"
)

// Spaces are the boundaries between sources; nil has none.
type Spaces = spaces.Spaces

// LocalSpace is the space of the sources whose pods could be root.
const LocalSpace = spaces.Local

// localFirst returns the objects with those of the local space first: of two with one name, these count.
func localFirst(s *Spaces, list []*Object) []*Object {
	if s == nil {
		return list
	}
	other := func(o *Object) bool { return s.Of(o.Origin.Source) != LocalSpace }
	local := slices.DeleteFunc(slices.Clone(list), other)
	return append(local, slices.DeleteFunc(slices.Clone(list), func(o *Object) bool { return !other(o) })...)
}

// View returns what the pods of a source see of the objects. It is made once for each space.
func (o *Objects) View(source string) *Objects {
	if o == nil || o.spaces == nil {
		return o
	}
	all := o.root()
	space := o.spaces.Of(source)
	all.viewing.Lock()
	defer all.viewing.Unlock()
	if v := all.views[space]; v != nil {
		return v
	}
	v := &Objects{byID: map[ObjectID]*Object{}, spaces: all.spaces, whole: all}
	for _, obj := range all.inOrder {
		if all.spaces.Sees(source, obj.Origin.Source, obj.Kind, obj.Object.GetNamespace()) {
			v.byID[obj.ID()] = obj
			v.inOrder = append(v.inOrder, obj)
		}
	}
	if all.views == nil {
		all.views = map[spaces.Space]*Objects{}
	}
	if len(v.inOrder) == len(all.inOrder) {
		v = all
	}
	all.views[space] = v
	return v
}

// within returns the boundaries between the sources of a set.
func (o *Objects) within() *Spaces {
	if o == nil {
		return nil
	}
	return o.spaces
}

// root returns the set that a view is of.
func (o *Objects) root() *Objects {
	if o.whole != nil {
		return o.whole
	}
	return o
}

// hiddenOwner returns the source of an object that exists and that a view hides; empty: there is none.
func (o *Objects) hiddenOwner(id ObjectID) string {
	if o == nil || o.whole == nil || o.byID[id] != nil || o.whole.byID[id] == nil {
		return ""
	}
	return o.whole.byID[id].Origin.Source
}

// sameSpace reports whether an object belongs to the space of a source.
func (o *Objects) sameSpace(source string, obj *Object) bool {
	return o.spaces.Of(source) == o.spaces.Of(obj.Origin.Source)
}
