// Package watcher knows what should run: it reads manifests from their sources, keeps the last good content of
// each input, and publishes all of it merged into one Desired whenever something changed.
//
// It owns: the files and URLs it reads, their last good content, and a Report on each of them. It must not decide
// what happens to a pod, nor know what runs; broken, half-written or unreachable inputs never take a pod away.
//
// Goroutines: Watcher.Run starts one per source and one that publishes, and waits for all of them. A FileSource
// adds one that empties the inotify queue while a read is under way.
package watcher

import (
	"context"
	"maps"
	"slices"
	"time"

	"monopod/internal/cause"
	"monopod/manifests"
)

// Set is the full content of one source at one moment, never a delta. A source keeps the last good
// content of each of its files, so a broken file changes Reports and leaves Pods as they are.
type Set struct {
	// Source is the name of the source, e.g. "file".
	Source string
	// Unread says that it is not known what all the source wants, and Reports says why: it has not been read
	// successfully in this run and Pods is empty, or what is in Pods may not be all.
	Unread bool
	// Partial says that the source may want more than what is in Pods, Objects and Workloads: its place has not been asked
	// yet, or what it said last has a mistake. What has run from this source is not hidden by that, unless it is Unread too.
	Partial bool
	// Unknown holds the inputs whose content has never been read successfully in this run although they exist (a
	// file that has been broken since the start). Pods that run from one of them must not be removed.
	Unknown []string
	// Pods in order of precedence within the source (file name order, then document order).
	Pods []*manifests.Pod
	// Objects and Workloads are the documents that are no pods, in the same order.
	Objects, Workloads []*manifests.Object
	// Reports tells about every input that was looked at and is not simply fine, and about those that are.
	Reports []Report
	// Distinct says that no two of the pods, nor of the objects, have one name.
	Distinct bool
}

// Report is the state of one input (a file, a directory, a URL) of a source.
type Report struct {
	Source string `json:"source"`
	// Input is its path or URL.
	Input string `json:"input"`
	// State is one of Accepted, Refused, Ignored, Unreachable, Conflict.
	State ReportState `json:"state"`
	// Errors are the reasons, one line each.
	Errors []string `json:"errors,omitempty"`
	// Cause is why it is Unreachable; else zero.
	Cause cause.Cause `json:"cause,omitzero"`
	// Mistaken are the pods and workloads whose documents were refused, as far as they can be told; of a place on the network only.
	Mistaken []Mistaken `json:"mistaken,omitempty"`
	// Pods are the keys ("ns/name") that this input now contributes; for a refused file those of its last good content.
	Pods []string `json:"pods,omitempty"`
	// Objects are the documents besides pods that it contributes, like "ConfigMap default/app".
	Objects []string `json:"objects,omitempty"`
	// Since is when the input came into this state.
	Since time.Time `json:"since"`
	// FromDisk is when the content was received that counts now, as long as the source has not confirmed it in this
	// run: it is the copy on disk. Zero else.
	FromDisk time.Time `json:"fromDisk,omitzero"`
}

// Mistaken is a document that was refused.
type Mistaken struct {
	manifests.ObjectID
	// Where is its place, as file:line.
	Where string
}

// ReportState classifies a Report.
type ReportState string

// Report states.
const (
	Accepted    ReportState = "Accepted"
	Refused     ReportState = "Refused"     // content is wrong; the last good content stays
	Ignored     ReportState = "Ignored"     // not a manifest by its name or type, or nothing in it means anything here
	Unreachable ReportState = "Unreachable" // cannot be read now; the last good content stays
	Conflict    ReportState = "Conflict"    // a pod or object of it is already defined by an input of higher precedence
)

// Source reads pods from one place and sends its whole content whenever it changed.
type Source interface {
	// Name is unique among the sources of a process.
	Name() string
	// Run sends Sets until ctx ends, then returns nil. The first Set is sent as soon as the source has been
	// read successfully for the first time; until then a source only sends Sets with Unread set.
	Run(ctx context.Context, out chan<- Set) error
}

// Desired is what all sources together want.
type Desired struct {
	// Pods by precedence: earlier sources win over later ones.
	Pods []*manifests.Pod
	// Objects and Workloads are what is defined besides pods, by the same precedence: one for each identity.
	Objects, Workloads []*manifests.Object
	// Reported holds the names of sources that have been read successfully in this run. Only pods of these
	// sources may be removed when they are missing from Pods.
	Reported map[string]bool
	// Partial holds the names of sources that may want more than what is known; see Set.Partial.
	Partial map[string]bool
	// Order has the names of all sources by precedence. A source that is not among them is no more; what is left of it
	// may be removed once it is known that no other source has it.
	Order []string
	// Unknown holds, by source, the inputs whose content is not known in this run; see Set.Unknown.
	Unknown map[string][]string
	// Reports of all sources, conflicts between sources included.
	Reports []Report
}

// Removable says whether a pod written at o may be removed when it is missing from Pods: its source has been
// read in this run, and so has the input it was written in, unless that input is gone. When there is no such source any
// more, it must be known what all the others want: it may have been renamed, or its pods moved. The zero Desired removes nothing.
func (d Desired) Removable(o manifests.Origin) bool {
	if len(d.Order) > 0 && o.Source != "" && !slices.Contains(d.Order, o.Source) {
		return d.Complete()
	}
	return d.Reported[o.Source] && !slices.Contains(d.Unknown[o.Source], o.File)
}

// Keeps says whether a pod that runs as written at was stays as it is although Pods has it from now: was stands in a
// source of higher precedence, or in an earlier file of the same one, and it is not known that the pod is not there any more.
func (d Desired) Keeps(was, now manifests.Origin) bool {
	if was.Source == now.Source {
		return was.File < now.File && slices.Contains(d.Unknown[was.Source], was.File)
	}
	i := slices.Index(d.Order, was.Source)
	return i >= 0 && i < slices.Index(d.Order, now.Source) && !d.Removable(was)
}

// Complete says that it is known what every source wants, to the last file of it.
func (d Desired) Complete() bool {
	return !slices.ContainsFunc(d.Order, func(name string) bool {
		return !d.Reported[name] || d.Partial[name] || len(d.Unknown[name]) > 0
	})
}

// Told says that every source has been read, or has said why it cannot be.
func (d Desired) Told() bool {
	return !slices.ContainsFunc(d.Order, func(name string) bool {
		return !d.Reported[name] && !slices.ContainsFunc(d.Reports, func(r Report) bool { return r.Source == name })
	})
}

// SameRead says that as much is known of what the sources want: Removable and Keeps say the same.
func (d Desired) SameRead(o Desired) bool {
	return maps.Equal(d.Reported, o.Reported) && maps.Equal(d.Partial, o.Partial) && maps.EqualFunc(d.Unknown, o.Unknown, slices.Equal[[]string])
}
