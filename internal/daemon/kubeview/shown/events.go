// Package shown converts documents and events to the objects that the Kubernetes API shows.
//
// It is pure: no clock, no state, no goroutines. It must not modify its arguments.
package shown

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

// NewEvent converts an event of the core group to events.k8s.io.
func NewEvent(e *corev1.Event) *eventsv1.Event {
	n := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	n.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	if e.Series != nil {
		n.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return n
}

// OldEvent converts an event of events.k8s.io to the core group.
func OldEvent(n *eventsv1.Event) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: n.ObjectMeta, EventTime: n.EventTime, ReportingController: n.ReportingController, ReportingInstance: n.ReportingInstance,
		Action: n.Action, Reason: n.Reason, InvolvedObject: n.Regarding, Related: n.Related, Message: n.Note, Type: n.Type,
		Source: n.DeprecatedSource, FirstTimestamp: n.DeprecatedFirstTimestamp, LastTimestamp: n.DeprecatedLastTimestamp, Count: n.DeprecatedCount,
	}
	e.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	if n.Series != nil {
		e.Series = &corev1.EventSeries{Count: n.Series.Count, LastObservedTime: n.Series.LastObservedTime}
	}
	return e
}
