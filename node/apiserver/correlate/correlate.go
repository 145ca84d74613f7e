// Package correlate owns the memory of similar events: it combines those that differ in their message only.
//
// It must not send them.
package correlate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Events that differ in their message only are an object each until there are too many of them; then one object stands for all
// that follow, with the last message and a count. Numbers and prefix are those of every Kubernetes component. client-go's
// correlator, which has them, would bring the readers of OpenAPI documents into the program.
const (
	// manySimilar is from which one on they are combined.
	manySimilar = 10
	// similarWithin is the longest gap between two events that still count as similar.
	similarWithin  = 10 * time.Minute
	combinedPrefix = "(combined from similar events): "
	// maxKinds bounds how many kinds of events are remembered.
	maxKinds = 1000
)

// likeness is what similar events have in common.
type likeness struct {
	about           corev1.ObjectReference
	kind, reason    string
	component, host string
}

// alike are the events of one likeness.
type alike struct {
	// messages are some of the different ones, fewer than manySimilar.
	messages map[string]bool
	at       time.Time
	// name, first and count are those of the object that stands for what is combined.
	name  string
	first metav1.Time
	count int32
}

// Events are the recent events by what similar ones have in common. It is emptied when there is too much in it.
type Events map[likeness]*alike

// Combine returns the event to send: e itself, or the event that stands for all that are similar to it.
func (s Events) Combine(now time.Time, e *corev1.Event) *corev1.Event {
	key := likeness{e.InvolvedObject, e.Type, e.Reason, e.Source.Component, e.Source.Host}
	key.about.ResourceVersion = ""
	a := s[key]
	if a == nil || now.Sub(a.at) > similarWithin {
		if len(s) >= maxKinds {
			clear(s)
		}
		a = &alike{messages: map[string]bool{}}
		s[key] = a
	}
	a.at = now
	a.messages[e.Message] = true
	if len(a.messages) < manySimilar {
		return e
	}
	delete(a.messages, e.Message)
	if a.count++; a.count == 1 {
		a.name, a.first = fmt.Sprintf("%s.%x", e.InvolvedObject.Name, now.UnixNano()), e.LastTimestamp
	}
	c := e.DeepCopy()
	c.Name, c.FirstTimestamp, c.Count, c.Message = a.name, a.first, a.count, combinedPrefix+e.Message
	return c
}
