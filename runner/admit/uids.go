package admit

import (
	"fmt"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// ReasonUIDConflict is of a pod whose manifest has the uid of another pod, as a copy of a dump has: they would share directories and logs.
const ReasonUIDConflict = "UIDConflict"

// twin says which other pod has the uid of a manifest, or had it first; nil: none. What runs with it keeps it.
func (d *admitter) twin(pod *manifests.Pod) *runner.Held {
	uid, key := pod.Object.UID, pod.Key()
	if uid == "" || d.Known[key].UID == uid {
		return nil
	}
	taken, found := d.uids[uid]
	for other, h := range d.Known {
		if other != key && h.UID == uid && (!found || other.Less(taken)) {
			taken, found = other, true
		}
	}
	if found && taken != key {
		return &runner.Held{Reason: ReasonUIDConflict, Message: fmt.Sprintf("metadata.uid %s is that of pod %s, which has its directories and logs by it: remove the uid from the manifest", uid, taken), Cause: cause.Cause{Kind: cause.UIDConflict, UID: string(uid), Pod: taken.String()}}
	}
	d.uids[uid] = key // those after it must not be faster
	for _, o := range d.Desired {
		if o.Object.UID == uid && o.Key() != key && !d.Known[o.Key()].Seen {
			return starting("metadata.uid %s may be that of pod %s, whose state is not known yet", uid, o.Key())
		}
	}
	return nil
}
