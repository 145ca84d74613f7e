package runner

// Size is what a directory takes.
type Size struct{ Bytes, Inodes int64 }

// DiskSizes is what a pod has on disk.
type DiskSizes struct {
	// Volumes are its emptyDirs, and what is filled from ConfigMaps and the like, by name; InMemory says which of them are no disk's.
	Volumes  map[string]Size
	InMemory map[string]bool
	// Layers are what the containers of Place have written to their root file systems, and to the volumes of their
	// images; Logs all log files. Both by container.
	Layers, Logs map[string]Size
	// Others is all else that goes with the pod.
	Others Size
}
