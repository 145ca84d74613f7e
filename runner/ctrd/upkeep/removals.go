package upkeep

import (
	"time"

	"monopod/manifests"
)

// Removal is a pod that was removed and whose sandbox is not taken apart yet: mounts, network or cgroups of it are still there.
type Removal struct {
	Pod *manifests.Pod
	UID string
	// Since is when the pod was given up, or found at the start.
	Since time.Time
	// Failed is how often taking it apart has failed, Err why it did last, Next when it is tried again.
	Failed int
	Err    error
	Next   time.Time
}

// unremarkable is how long a removal takes without being worth a word.
const unremarkable = time.Second

// removal is how far a job is; ok is false when there is none.
func (t *Queue) removal(id string) (m Removal, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.jobs[id]
	if j == nil {
		return m, false
	}
	return Removal{Since: j.since, Failed: j.failed, Err: j.err, Next: j.due}, true
}
