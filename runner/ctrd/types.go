package ctrd

import (
	"monopod/runner/ctrd/imageuse"
	"monopod/runner/ctrd/notice"
	"monopod/runner/ctrd/upkeep"
)

// Types of the parts that callers of a Runtime use.
type (
	// Images lists and manages the images that pods of this instance use.
	Images = imageuse.Images
	// ImageUse is an image and the pods that have a container with it.
	ImageUse = imageuse.Use
	// Removal is a deleted pod whose sandbox has not been torn down yet.
	Removal = upkeep.Removal
)

// Reasons of events about the pod network and logs.
const (
	EventNetworkDamaged  = notice.EventNetworkDamaged
	EventNetworkRepaired = notice.EventNetworkRepaired
	EventLogsDropped     = notice.EventLogsDropped
	EventLogsResumed     = notice.EventLogsResumed
)
