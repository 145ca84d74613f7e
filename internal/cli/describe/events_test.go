package describe

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/events"
)

func TestHowAnEventIsPrinted(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := corev1.Event{Type: "Warning", Reason: "BackOff", Message: "a\nb", Count: 3}
	e.FirstTimestamp.Time, e.LastTimestamp.Time = now.Add(-time.Hour), now.Add(-5*time.Second)
	e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "x", Name: "web", FieldPath: "spec.initContainers{i}"}
	if got := strings.Join(eventRow(&e, now), "|"); got != "5s (x3 over 60m)|Warning|BackOff|x|pod/web{i}|a; b" {
		t.Errorf("%s", got)
	}
	e.Count, e.InvolvedObject = 1, events.InputRef("/m/a.yaml")
	if got := strings.Join(eventRow(&e, now), "|"); got != "5s|Warning|BackOff|-|/m/a.yaml|a; b" {
		t.Errorf("%s", got)
	}
	e.LastTimestamp.Time = now.Add(time.Hour) // recorded by a clock that was ahead
	if got := eventRow(&e, now)[0]; got != "<unknown>" {
		t.Errorf("%s", got)
	}
}
