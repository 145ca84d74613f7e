package upkeep

import (
	"time"

	"monopod/manifests"
)

// Removal is a deleted pod whose sandbox has not been torn down yet: some of its mounts, network or cgroups exist.
type Removal struct {
	Pod *manifests.Pod
	UID string
	// Since is when the removal was queued, or found at startup.
	Since time.Time
	// Failed counts the failures, Err is the latest, Next is the time of the next attempt.
	Failed int
	Err    error
	Next   time.Time
}

// unremarkable is the longest removal that is not reported.
const unremarkable = time.Second

// removal returns the progress of a job; ok is false if there is none.
func (t *Queue) removal(id string) (m Removal, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.jobs[id]
	if j == nil {
		return m, false
	}
	return Removal{Since: j.since, Failed: j.failed, Err: j.err, Next: j.due}, true
}
