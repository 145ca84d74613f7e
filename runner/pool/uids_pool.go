package pool

import (
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// twinsLocked returns the uids that more than one pod has or requests. Most manifests have none.
func (p *registry) twinsLocked() map[types.UID]bool {
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
		if e.desired.round == p.round && e.desired.pod != nil && e.desired.pod.Object.UID != "" {
			note(e.desired.pod.Object.UID, key)
		}
	}
	return twins
}
