package model

import (
	"time"

	"monopod/manifests"
)

// Place is where the kernel accounts for the resources of a pod.
type Place struct {
	manifests.Key
	UID     string
	Created time.Time
	// Cgroup is the path of the pod's cgroup in each hierarchy.
	Cgroup string
	// HostNetwork reports that the pod has no network namespace of its own.
	HostNetwork bool
	// Containers are those that have been started and are not known to have ended.
	Containers []ContainerPlace
}

// ContainerPlace is the Place of a container.
type ContainerPlace struct {
	Name, ID, Image string
	Restarts        int
	Started         time.Time
	Cgroup          string
}
