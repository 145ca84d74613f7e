package admit

import (
	"fmt"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// ReasonUIDConflict is the reason of a pod whose manifest has the uid of another pod, as in a copied dump: both would share directories and
// logs.
const ReasonUIDConflict = "UIDConflict"

// twin returns the other pod that has the uid of a manifest, or requested it first; nil if there is none. A running pod keeps its uid.
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
		return &runner.Held{Reason: ReasonUIDConflict, Message: fmt.Sprintf("metadata.uid %s is already used by pod %s for its directories and logs: remove the uid from the manifest", uid, taken), Cause: cause.Cause{Kind: cause.UIDConflict, UID: string(uid), Pod: taken.String()}}
	}
	d.uids[uid] = key // pods after this one must not take it
	for _, o := range d.Desired {
		if o.Object.UID == uid && o.Key() != key && !d.Known[o.Key()].Seen {
			return starting("metadata.uid %s may be used by pod %s, whose state is not known yet", uid, o.Key())
		}
	}
	return nil
}
