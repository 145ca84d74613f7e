// Package watcher knows what should run: it reads manifests from their sources, keeps the last good content of
// each input, and publishes all of it merged into one Desired whenever something changed.
//
// It owns: the files and URLs it reads, their last good content, and the state of each of them (model.Input). It must not decide
// what happens to a pod, nor know what runs; broken, half-written or unreachable inputs never take a pod away.
//
// Goroutines: Watcher.Run starts one per source and one that publishes, and waits for all of them. A file.Source
// adds one that empties the inotify queue while a read is under way.
package watcher

import (
	"context"

	"monopod/internal/model"
	"monopod/manifests"
)

// Set is the full content of one source at one moment, never a delta. A source keeps the last good
// content of each of its files, so a broken file changes Inputs and leaves Pods as they are.
type Set struct {
	// Source is the name of the source, e.g. "file".
	Source string
	// Unread is set while the full content of the source is unknown; Inputs has the reason. Either the source has not been read
	// successfully in this run, and Pods is empty, or Pods may be incomplete.
	Unread bool
	// Partial is set while the source may want more than Pods, Objects and Workloads: it has not answered yet, or its last answer has an
	// error. Pods that ran from this source stay visible, unless Unread is set too.
	Partial bool
	// Unknown holds the inputs whose content has never been read successfully in this run although they exist (a
	// file that has been broken since the start). Pods that run from one of them must not be removed.
	Unknown []string
	// Pods in order of precedence within the source (file name order, then document order).
	Pods []*manifests.Pod
	// Objects and Workloads are the documents that are no pods, in the same order.
	Objects, Workloads []*manifests.Object
	// Inputs has an entry for every input that has been read or tried.
	Inputs []model.Input
	// Distinct is set if no two pods and no two objects share a name.
	Distinct bool
}

// Source reads pods from one place and sends its whole content whenever it changed.
type Source interface {
	// Name is unique among the sources of a process.
	Name() string
	// Run sends Sets until ctx ends, then returns nil. The first Set is sent as soon as the source has been
	// read successfully for the first time; until then a source only sends Sets with Unread set.
	Run(ctx context.Context, out chan<- Set) error
}
