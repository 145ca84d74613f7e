package runner

import "monopod/internal/cause"

// Held says why a desired pod may not be started now, or its edit not be carried out.
type Held struct {
	Reason  string
	Message string
	// Cause is what it waits for.
	Cause cause.Cause
	// Final says that nothing that would let it start is under way: a kubelet rejects such a pod for good.
	Final bool
}
