package eventview

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/events"
	"monopod/node/kubeapi/kinds"
)

func newEvents() *Events {
	return New(func(namespace, name string) types.UID { return types.UID("uid of " + namespace + "/" + name) })
}

func TestRecordedEventsInBothKinds(t *testing.T) {
	recorder, s := events.New(events.Config{Dir: t.TempDir(), Node: "node"}), newEvents()
	show := func() ([]*corev1.Event, []*eventsv1.Event) { return s.Show(recorder.List(events.Filter{}), nil) }
	recorder.Event(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "pod-uid"}, corev1.EventTypeNormal, "Started", "it runs")
	recorder.Event(events.NodeRef("node"), corev1.EventTypeWarning, "Full", "the disk is full")
	old, now := show()
	if len(old) != 2 || len(now) != 2 {
		t.Fatalf("%d and %d events", len(old), len(now))
	}
	e, n := old[0], now[0]
	if e.Reason != "Started" || e.InvolvedObject.UID != "pod-uid" || e.UID == "" || e.ResourceVersion != "" || e.Namespace != "shop" || e.Kind != "Event" {
		t.Errorf("%+v", e)
	}
	if n.Name != e.Name || n.UID != e.UID || n.Note != "it runs" || n.Regarding.Name != "web" || n.ReportingController != "monopod" || n.DeprecatedCount != 1 || n.APIVersion != "events.k8s.io/v1" {
		t.Errorf("%+v", n)
	}
	if of := old[1].InvolvedObject; of.UID != "node" {
		t.Errorf("the Node: %+v", of)
	}
	if again, _ := show(); again[0] != old[0] || again[1] != old[1] {
		t.Error("events that have not changed are other objects")
	}
	recorder.Event(events.NodeRef("node"), corev1.EventTypeWarning, "Full", "the disk is full")
	again, _ := show()
	if len(again) != 2 || again[0] != old[0] || again[1] == old[1] || again[1].Count != 2 || again[1].UID != old[1].UID {
		t.Errorf("after another one: %+v", again)
	}
}

func TestDeletedEventsReturnUnderAnotherUID(t *testing.T) {
	s := newEvents()
	recorded := []corev1.Event{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", ResourceVersion: "1"}}}
	next := func() types.UID { return "next" }
	s.Deleted("shop", "a", next) // not shown yet
	if old, _ := s.Show(recorded, nil); len(old) != 1 || old[0].UID != "uid of shop/a" {
		t.Fatalf("%+v", old)
	}
	s.Deleted("shop", "a", next)
	for range 2 {
		if old, now := s.Show(recorded, nil); len(old)+len(now) > 0 {
			t.Errorf("deleted: %+v, %+v", old, now)
		}
	}
	recorded[0].ResourceVersion = "2"
	if old, now := s.Show(recorded, nil); len(old) != 1 || old[0].UID != "next" || now[0].UID != "next" {
		t.Errorf("it has happened again: %+v, %+v", old, now)
	}
}

func TestEventsOfClientsInBothKinds(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid"}
	}
	at, s := metav1.NowMicro(), newEvents()
	written := []kinds.Object{
		&corev1.Event{ObjectMeta: meta("old"), Reason: "A", Message: "text", InvolvedObject: corev1.ObjectReference{Name: "x"}, Series: &corev1.EventSeries{Count: 2, LastObservedTime: at}},
		&eventsv1.Event{ObjectMeta: meta("new"), Reason: "B", Note: "note", Regarding: corev1.ObjectReference{Name: "y"}, Series: &eventsv1.EventSeries{Count: 3, LastObservedTime: at}},
	}
	old, now := s.Show(nil, written)
	if len(old) != 1 || len(now) != 1 {
		t.Fatalf("%v, %v", old, now)
	}
	if e := old[0]; e.Name != "new" || e.Reason != "B" || e.Message != "note" || e.InvolvedObject.Name != "y" || e.Series.Count != 3 || e.Kind != "Event" {
		t.Errorf("%+v", e)
	}
	if n := now[0]; n.Name != "old" || n.Reason != "A" || n.Note != "text" || n.Regarding.Name != "x" || n.Series.Count != 2 {
		t.Errorf("%+v", n)
	}
	s.Deleted("shop", "old", func() types.UID { t.Error("it is not of the record"); return "" })
	if o, n := s.Show(nil, written); o[0] != old[0] || n[0] != now[0] {
		t.Error("they are converted again")
	}
}
