package model

import (
	"maps"
	"slices"

	"monopod/manifests"
)

// Desired is the combined content of all sources.
type Desired struct {
	// Pods are ordered by precedence: earlier sources win over later ones.
	Pods []*manifests.Pod
	// Objects and Workloads are the other documents in the same order, one for each identity.
	Objects, Workloads []*manifests.Object
	// Overridden are not in effect, because an earlier definition has the same name.
	Overridden Overridden
	// Reported holds the names of the sources that have been read in this run. Only pods of these sources may be removed when they
	// are missing from Pods.
	Reported map[string]bool
	// Partial holds the names of sources that may have more content than is known; see watcher.Set.
	Partial map[string]bool
	// Order has the names of all sources by precedence. A pod of a source that is not listed may be removed once it is known that no other
	// source has it.
	Order []string
	// Unknown holds, by source, the inputs whose content is unknown in this run; see watcher.Set.
	Unknown map[string][]string
	// Inputs are the inputs of all sources, with the conflicts between sources.
	Inputs []Input
	// Incomplete reports that Pods may lack desired pods of workloads, so no pod may be removed.
	Incomplete bool
}

// Overridden are definitions of pods and of other objects that are not in effect.
type Overridden struct {
	Pods    []*manifests.Pod
	Objects []*manifests.Object
}

// Removable reports whether a pod written at o may be removed when it is missing from Pods. Its source and its input must have been read in
// this run, unless that input has disappeared. A pod of an unknown source may be removed once the content of all other sources is known:
// its source may have been renamed, or its pods moved. The zero Desired removes nothing.
func (d Desired) Removable(o manifests.Origin) bool { return !d.Incomplete && d.gone(o) }

// gone reports whether a pod written at o is known to have disappeared if Pods lacks it.
func (d Desired) gone(o manifests.Origin) bool {
	if len(d.Order) > 0 && o.Source != "" && !slices.Contains(d.Order, o.Source) {
		return d.Complete()
	}
	return d.Reported[o.Source] && !slices.Contains(d.Unknown[o.Source], o.File)
}

// Keeps reports whether a running pod written at was stays unchanged although Pods has it from now: was is in a source of higher
// precedence, or in an earlier file of the same source, and may still contain the pod.
func (d Desired) Keeps(was, now manifests.Origin) bool {
	if was.Source == now.Source {
		return was.File < now.File && slices.Contains(d.Unknown[was.Source], was.File)
	}
	i := slices.Index(d.Order, was.Source)
	return i >= 0 && i < slices.Index(d.Order, now.Source) && !d.gone(was)
}

// Complete reports whether the content of every source is known, to its last file.
func (d Desired) Complete() bool {
	return !slices.ContainsFunc(d.Order, func(name string) bool {
		return !d.Reported[name] || d.Partial[name] || len(d.Unknown[name]) > 0
	})
}

// Answered reports whether every source has been read, or has an input that describes why it cannot be read.
func (d Desired) Answered() bool {
	return !slices.ContainsFunc(d.Order, func(name string) bool {
		return !d.Reported[name] && !slices.ContainsFunc(d.Inputs, func(in Input) bool { return in.Source == name })
	})
}

// SameRead reports whether d and o know equally much of the sources, so that Removable and Keeps have the same results.
func (d Desired) SameRead(o Desired) bool {
	return d.Incomplete == o.Incomplete && maps.Equal(d.Reported, o.Reported) && maps.Equal(d.Partial, o.Partial) &&
		maps.EqualFunc(d.Unknown, o.Unknown, slices.Equal[[]string])
}
