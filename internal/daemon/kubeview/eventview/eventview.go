// Package eventview shows events in both of their kinds, that of the core group and that of events.k8s.io: recorded ones, and those that clients
// wrote in one kind.
//
// It owns which events are shown, under which uid, and which recorded ones a client has deleted. It must not store events, nor modify those that
// it is given. It is not safe for concurrent use.
//
// Goroutines: none.
package eventview

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/shown"
	"monopod/node/kubeapi/kinds"
)

// Events are the events that were shown last. Make it with New.
type Events struct {
	// uid returns the uid that belongs to a name.
	uid func(namespace, name string) types.UID
	// shown are the events by namespace/name.
	shown map[string]event
}

// event is an event in both of its kinds.
type event struct {
	// revision is the revision in the record, written the object of a client.
	revision string
	written  kinds.Object
	// deleted: a client has deleted it, and it has not happened again since.
	deleted bool
	// uid is that of an event of the record.
	uid types.UID
	old *corev1.Event
	now *eventsv1.Event
}

// New returns an empty Events. uid returns the uid that belongs to a name.
func New(uid func(namespace, name string) types.UID) *Events { return &Events{uid: uid} }

// Show returns the recorded events in both kinds, and those written by clients in the respective other kind. An unchanged event is the same
// pointer as before.
func (s *Events) Show(recorded []corev1.Event, written []kinds.Object) (old []*corev1.Event, now []*eventsv1.Event) {
	known := make(map[string]event, len(s.shown))
	for i := range recorded {
		key := recorded[i].Namespace + "/" + recorded[i].Name
		e, ok := s.shown[key]
		if !ok || e.written != nil || e.revision != recorded[i].ResourceVersion {
			e = s.recorded(&recorded[i], e.uid)
		}
		if known[key] = e; e.deleted {
			continue
		}
		old, now = append(old, e.old), append(now, e.now)
	}
	for _, o := range written {
		key := o.GetNamespace() + "/" + o.GetName()
		e, ok := s.shown[key]
		if !ok || e.written != o {
			e = converted(o)
		}
		known[key] = e
		if e.now != nil {
			now = append(now, e.now)
		}
		if e.old != nil {
			old = append(old, e.old)
		}
	}
	s.shown = known
	return old, now
}

// converted returns an event of a client in the other kind.
func converted(o kinds.Object) event {
	e := event{written: o}
	switch t := o.(type) {
	case *corev1.Event:
		e.now = shown.NewEvent(t)
	case *eventsv1.Event:
		e.old = shown.OldEvent(t)
	}
	return e
}

// recorded returns an event of the record. It does not change afterwards. The uid is the one that it has already; empty: that of its name.
func (s *Events) recorded(e *corev1.Event, uid types.UID) event {
	o := new(*e)
	o.ResourceVersion = ""
	if o.UID = uid; uid == "" {
		o.UID = s.uid(o.Namespace, o.Name)
	}
	if o.InvolvedObject.Kind == "Node" && o.InvolvedObject.UID == "" {
		o.InvolvedObject.UID = types.UID(o.InvolvedObject.Name) // as set by a kubelet: kubectl describe searches for it
	}
	return event{revision: e.ResourceVersion, uid: o.UID, old: o, now: shown.NewEvent(o)}
}

// Deleted hides a recorded event that a client has deleted until it happens again, then under the uid that next returns.
func (s *Events) Deleted(namespace, name string, next func() types.UID) {
	key := namespace + "/" + name
	if e, ok := s.shown[key]; ok && e.written == nil {
		e.deleted, e.uid = true, next()
		s.shown[key] = e
	}
}
