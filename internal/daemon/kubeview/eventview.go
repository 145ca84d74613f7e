package kubeview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/events"
	"monopod/node/kubeapi/kinds"
)

// events adds the recorded events, and also the events of clients in the respective other kind.
func (b *build) events() {
	v := b.view
	var recorded []corev1.Event
	if v.cfg.Events != nil {
		recorded = v.cfg.Events.List(events.Filter{})
	}
	var written []kinds.Object
	if v.cfg.Kept != nil {
		written = slices.Concat(v.cfg.Kept.Objects(v.kinds.event), v.cfg.Kept.Objects(v.kinds.newEvent))
	}
	old, now := v.events.Show(recorded, written)
	for _, e := range old {
		b.add(v.kinds.event, e)
	}
	for _, e := range now {
		b.add(v.kinds.newEvent, e)
	}
}
