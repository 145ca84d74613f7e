package model

import (
	"maps"
	"slices"

	"monopod/manifests"
)

// Desired is what all sources together ask for.
type Desired struct {
	// Pods are ordered by precedence: earlier sources win over later ones.
	Pods []*manifests.Pod
	// Objects and Workloads are the other documents by the same precedence, one for each identity.
	Objects, Workloads []*manifests.Object
	// Reported holds the names of the sources that have been read in this run. Only pods of these sources may be removed when they
	// are missing from Pods.
	Reported map[string]bool
	// Partial holds the names of sources that may want more than what is known; see watcher.Set.
	Partial map[string]bool
	// Order has the names of all sources by precedence. Pods of a source that is not among them may be removed once it is known that
	// no other source has them.
	Order []string
	// Unknown holds, by source, the inputs whose content is not known in this run; see watcher.Set.
	Unknown map[string][]string
	// Inputs are those of all sources, with the conflicts between sources.
	Inputs []Input
	// Incomplete reports that Pods may lack pods that are wanted, those of workloads: nothing may be removed.
	Incomplete bool
}

// Removable reports whether a pod written at o may be removed when it is missing from Pods: its source has been read in this run, and so
// has the input that it was written in, unless that input is gone. A pod of an unknown source may be removed once it is known what all
// other sources want: its source may have been renamed, or its pods moved. The zero Desired removes nothing.
func (d Desired) Removable(o manifests.Origin) bool { return !d.Incomplete && d.gone(o) }

// gone reports whether it is known that what was written at o is not there any more, should Pods not have it.
func (d Desired) gone(o manifests.Origin) bool {
	if len(d.Order) > 0 && o.Source != "" && !slices.Contains(d.Order, o.Source) {
		return d.Complete()
	}
	return d.Reported[o.Source] && !slices.Contains(d.Unknown[o.Source], o.File)
}

// Keeps reports whether a pod that runs as written at was stays as it is although Pods has it from now: was is in a source of higher
// precedence, or in an earlier file of the same source, and the pod may still be there.
func (d Desired) Keeps(was, now manifests.Origin) bool {
	if was.Source == now.Source {
		return was.File < now.File && slices.Contains(d.Unknown[was.Source], was.File)
	}
	i := slices.Index(d.Order, was.Source)
	return i >= 0 && i < slices.Index(d.Order, now.Source) && !d.gone(was)
}

// Complete reports whether it is known what every source wants, to the last file of it.
func (d Desired) Complete() bool {
	return !slices.ContainsFunc(d.Order, func(name string) bool {
		return !d.Reported[name] || d.Partial[name] || len(d.Unknown[name]) > 0
	})
}

// Answered reports whether every source has been read, or has an input that says why it cannot be.
func (d Desired) Answered() bool {
	return !slices.ContainsFunc(d.Order, func(name string) bool {
		return !d.Reported[name] && !slices.ContainsFunc(d.Inputs, func(in Input) bool { return in.Source == name })
	})
}

// SameRead reports whether as much is known of what the sources want: Removable and Keeps have the same results.
func (d Desired) SameRead(o Desired) bool {
	return d.Incomplete == o.Incomplete && maps.Equal(d.Reported, o.Reported) && maps.Equal(d.Partial, o.Partial) &&
		maps.EqualFunc(d.Unknown, o.Unknown, slices.Equal[[]string])
}
