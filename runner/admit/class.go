package admit

import (
	"fmt"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// ReasonPriorityClassNotFound is the reason of a pod that names a PriorityClass which no source defines.
const ReasonPriorityClassNotFound = "PriorityClassNotFound"

// unclassed holds a new pod, or an edit that changes the class, while the PriorityClass is missing: it would run with priority 0. A pod
// that exists with that class goes on, also after a reboot, because its class may have been missing from the beginning.
func (d *admitter) unclassed(pod *manifests.Pod, known Holding) *runner.Held {
	class := manifests.MissingPriorityClass(pod)
	has := known.has()
	switch {
	case d.AnyClass, class == "", has != nil && has.Object.Spec.PriorityClassName == class:
		return nil
	case !known.Seen:
		return starting("whether it is already running is not known yet")
	}
	return &runner.Held{
		Reason: ReasonPriorityClassNotFound,
		Message: fmt.Sprintf("no PriorityClass with name %s was found: correct spec.priorityClassName, or add the document (built in: %s, %s)",
			class, manifests.NodeCritical, manifests.ClusterCritical),
		Cause: cause.Cause{Kind: cause.Held},
	}
}
