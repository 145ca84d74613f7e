package correlate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEventsThatDifferInTheirMessageAreCombined(t *testing.T) {
	s, now := Events{}, time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	tell := func(name, reason, message string) *corev1.Event {
		return s.Combine(now, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name + ".1", Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name},
			Reason:         reason, Message: message, Count: 1, LastTimestamp: metav1.Time{Time: now},
		})
	}
	combined := func(e *corev1.Event) bool { return strings.HasPrefix(e.Message, "(combined from similar events): ") }
	for i := range 9 {
		if e := tell("web", "Unhealthy", fmt.Sprint("answer ", i)); combined(e) || e.Name != "web.1" {
			t.Errorf("event %d is %s: %s", i, e.Name, e.Message)
		}
	}
	name, first := "", metav1.Time{}
	for i := range 5 {
		now = now.Add(9 * time.Minute)
		e := tell("web", "Unhealthy", fmt.Sprint("further answer ", i))
		if i == 0 {
			name, first = e.Name, metav1.Time{Time: now}
		}
		if want := fmt.Sprint("(combined from similar events): further answer ", i); e.Message != want || e.Count != int32(i+1) || e.Name != name || e.FirstTimestamp != first {
			t.Errorf("event %d of those after nine is %s, %s, %d since %s", i, e.Name, e.Message, e.Count, e.FirstTimestamp)
		}
	}
	if !strings.HasPrefix(name, "web.") || name == "web.1" {
		t.Errorf("the object of all is called %q", name)
	}
	for what, e := range map[string]*corev1.Event{"another reason": tell("web", "BackOff", "x"), "another pod": tell("db", "Unhealthy", "answer 0")} {
		if combined(e) {
			t.Errorf("%s: %s", what, e.Message)
		}
	}
	now = now.Add(10*time.Minute + time.Second)
	if e := tell("web", "Unhealthy", "after a quiet time"); combined(e) {
		t.Error(e.Message)
	}
	for i := range 2 * maxKinds {
		tell(fmt.Sprint("pod-", i), "Unhealthy", "x")
	}
	if len(s) > maxKinds {
		t.Errorf("%d kinds of events are remembered", len(s))
	}
}
