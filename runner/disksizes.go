package runner

// Size is the disk usage of a directory.
type Size struct{ Bytes, Inodes int64 }

// DiskSizes is the disk usage of a pod by part.
type DiskSizes struct {
	// Volumes are the emptyDirs and the volumes filled from ConfigMaps, Secrets and the like, by name. InMemory marks those on tmpfs.
	Volumes  map[string]Size
	InMemory map[string]bool
	// Layers are the writable layers and image volumes of the containers of Place, Logs all their log files. Both are by container name.
	Layers, Logs map[string]Size
	// Others is the remaining usage of the pod.
	Others Size
}
