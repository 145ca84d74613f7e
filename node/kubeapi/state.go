// Package kubeapi serves the Kubernetes API of one machine over HTTP: discovery, reads, watches, writes and streams.
//
// It sees objects through State, and changes them through Writer. It must not know where they are stored, nor how pods are run. Decisions are
// in the packages below it: access, codec, kinds, request, revlog, strategy, tables.
//
// Goroutines: those of net/http. A watch waits in the goroutine of its connection; a watch of a polled kind has one more for polling.
package kubeapi

import "monopod/node/kubeapi/storage"

// The storage interfaces: see package storage.
type (
	// State provides all objects.
	State = storage.State
	// Writer stores the writes of clients.
	Writer = storage.Writer
	// Ref names an object.
	Ref = storage.Ref
	// Definition is where an object is defined.
	Definition = storage.Definition
	// Change is one atomic write.
	Change = storage.Change
	// Removal removes an object.
	Removal = storage.Removal
	// Ephemeral adds ephemeral containers to a pod.
	Ephemeral = storage.Ephemeral
)
