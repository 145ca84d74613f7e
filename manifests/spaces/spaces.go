// Package spaces decides which sources see each other's objects (docs/adr/0018-spaces.md).
//
// It is pure, and owns the rule alone: it must not know objects, pods or the configuration.
package spaces

import (
	"slices"
	"strings"
)

// Space is a set of sources whose objects and pods belong together. It is the name of its only source, or Local.
type Space string

// Local is the space of the sources whose pods could be root. No source can have this name.
const Local Space = "(local)"

// APIServer is the source of pods that an API server has bound to this node: always a space of its own.
const APIServer = "apiserver"

// Spaces are the boundaries between sources. A nil Spaces has none: all sources see each other.
type Spaces struct {
	// Local are the sources whose pods may do everything.
	Local []string
	// Sharing has, by the source that reads, what the administrator lets it read: "source" or "source/namespace".
	Sharing map[string][]string
}

// Of returns the space of a source.
func (s *Spaces) Of(source string) Space {
	if s == nil || source != APIServer && slices.Contains(s.Local, source) {
		return Local
	}
	return Space(source)
}

// Sees reports whether pods of the source reader may refer to objects of a kind in a namespace of the source owner.
func (s *Spaces) Sees(reader, owner, kind, namespace string) bool {
	if s == nil || s.Of(reader) == s.Of(owner) || s.Of(owner) == Local && offered(kind) {
		return true
	}
	for source, shared := range s.Sharing {
		if s.Of(source) == s.Of(reader) && slices.ContainsFunc(shared, func(what string) bool { return shares(what, owner, namespace) }) {
			return true
		}
	}
	return false
}

// Takes reports whether the source taker may have what the source owner had: the storage that a claim left, or the resources of a pod that is
// preempted. The local space may take from others, never the other way around.
func (s *Spaces) Takes(taker, owner string) bool {
	return s.Of(taker) == Local || s.Of(taker) == s.Of(owner)
}

// offered reports whether the local space offers objects of a kind to all others.
func offered(kind string) bool {
	return kind == "StorageClass" || kind == "RuntimeClass" || kind == "PriorityClass"
}

// shares reports whether an entry of Sharing includes the objects of a source in a namespace.
func shares(entry, owner, namespace string) bool {
	source, in, limited := strings.Cut(entry, "/")
	return source == owner && (!limited || in == namespace)
}

// Entry returns the entry of Sharing that includes the objects of a source in a namespace; empty: cluster-wide ones.
func Entry(owner, namespace string) string {
	if namespace == "" {
		return owner
	}
	return owner + "/" + namespace
}
