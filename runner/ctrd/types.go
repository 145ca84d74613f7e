package ctrd

import (
	"monopod/runner/ctrd/imageuse"
	"monopod/runner/ctrd/notice"
	"monopod/runner/ctrd/upkeep"
)

// What callers of a Runtime see of its parts.
type (
	// Images is what can be known of, and done with, the images that pods of this instance use.
	Images = imageuse.Images
	// ImageUse is an image and the pods that have a container with it.
	ImageUse = imageuse.Use
	// Removal is a pod that was removed and whose sandbox is not taken apart yet.
	Removal = upkeep.Removal
)

// Reasons of events about the pod network and logs.
const (
	EventNetworkDamaged  = notice.EventNetworkDamaged
	EventNetworkRepaired = notice.EventNetworkRepaired
	EventLogsDropped     = notice.EventLogsDropped
	EventLogsResumed     = notice.EventLogsResumed
)
