package kubeview

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/events"
	"monopod/node/kubeapi/kinds"
)

// TestEventsInBothKinds: the record and the events of clients.
func TestEventsInBothKinds(t *testing.T) {
	recorder := events.New(events.Config{Dir: t.TempDir(), Node: "node"})
	own := &kept{objects: []kinds.Object{
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", UID: "a"}, Reason: "A"},
		&eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new", UID: "b"}, Reason: "B"},
	}}
	w := newWorld(t, func(c *Config) { c.Events, c.Kept = recorder, own })
	recorder.Event(events.NodeRef("node"), corev1.EventTypeWarning, "Full", "the disk is full")
	const newKind = "events.k8s.io/v1/Event"
	old, now := w.all("Event"), w.all(newKind)
	if len(old) != 3 || len(now) != 3 {
		t.Fatalf("%d and %d events", len(old), len(now))
	}
	if e := get[*corev1.Event](w, "Event", "new"); e.Reason != "B" {
		t.Errorf("%+v", e)
	}
	if n := get[*eventsv1.Event](w, newKind, "old"); n.Reason != "A" {
		t.Errorf("%+v", n)
	}
	if again := w.all("Event"); !slices.Equal(again, old) {
		t.Error("events that have not changed are other objects")
	}
}

// heard reports whether a subscription has a value.
func heard(changed <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

func TestSubscriptionsHearOfEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.New(events.Config{Dir: t.TempDir(), Node: "node"})
		w := newWorld(t, func(c *Config) { c.Events = recorder })
		w.Objects(t.Context()) // the record is read
		changed, cancel := w.Subscribe()
		if heard(changed) {
			t.Error("a change before there was one")
		}
		w.state.Notify()
		if !heard(changed) {
			t.Error("a change of the state is not heard of")
		}
		recorder.Event(events.NodeRef("node"), corev1.EventTypeNormal, "A", "b")
		if !heard(changed) {
			t.Error("an event is not heard of")
		}
		cancel()
		cancel()
		w.state.Notify()
		if heard(changed) {
			t.Error("a change after the end")
		}
	})
}

// TestWhatChangesWithTimeIsAnnounced: a Deployment that makes no progress.
func TestWhatChangesWithTimeIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.open() // and none of its pods is ever made
		w.state.Publish(desired(t, files, deploymentYAML))
		w.Objects(t.Context()) // without subscribers there is no timer
		changed, cancel := w.Subscribe()
		w.Objects(t.Context())
		time.Sleep(599 * time.Second)
		if heard(changed) {
			t.Error("too early")
		}
		time.Sleep(2 * time.Second)
		if !heard(changed) {
			t.Error("the deadline is not announced")
		}
		w.Objects(t.Context())
		time.Sleep(time.Hour)
		if heard(changed) {
			t.Error("announced again")
		}
		cancel()
	})
}
