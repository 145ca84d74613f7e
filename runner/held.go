package runner

import "monopod/internal/cause"

// Held is the reason why a desired pod may not be started now, or its edit may not be applied.
type Held struct {
	Reason  string
	Message string
	// Cause is what the pod waits for.
	Cause cause.Cause
	// Final reports that nothing in progress will let the pod start; the kubelet would reject it permanently.
	Final bool
	// Failed makes the pod Failed, as a kubelet does when it rejects a pod. Otherwise it is Pending.
	Failed bool
}
