package runner

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// ReasonUIDConflict is of a pod whose manifest has the uid of another pod, as a copy of a dump has: they would share directories and logs.
const ReasonUIDConflict = "UIDConflict"

// twin says which other pod has the uid of a manifest, or had it first; nil: none. What runs with it keeps it.
func (d *admitter) twin(pod *manifests.Pod) *Held {
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
		return &Held{Reason: ReasonUIDConflict, Message: fmt.Sprintf("metadata.uid %s is that of pod %s, which has its directories and logs by it: remove the uid from the manifest", uid, taken)}
	}
	d.uids[uid] = key // those after it must not be faster
	for _, o := range d.Desired {
		if o.Object.UID == uid && o.Key() != key && !d.Known[o.Key()].Seen {
			return &Held{Reason: ReasonStarting, Message: fmt.Sprintf("metadata.uid %s may be that of pod %s, whose state is not known yet", uid, o.Key())}
		}
	}
	return nil
}

// twinsLocked are the uids that more than one pod has or asks for. Most manifests have none.
func (p *Pool) twinsLocked() map[types.UID]bool {
	asked := false
	for _, pod := range p.desired.Pods {
		asked = asked || pod.Object.UID != ""
	}
	if !asked {
		return nil
	}
	first, twins := map[types.UID]manifests.Key{}, map[types.UID]bool{}
	note := func(uid types.UID, key manifests.Key) {
		if other, known := first[uid]; known && other != key {
			twins[uid] = true
		}
		first[uid] = key
	}
	for key, e := range p.entries {
		if e.report.uid != "" {
			note(e.report.uid, key)
		}
		if e.wish.round == p.round && e.wish.pod != nil && e.wish.pod.Object.UID != "" {
			note(e.wish.pod.Object.UID, key)
		}
	}
	return twins
}
