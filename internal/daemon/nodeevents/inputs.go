package nodeevents

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node/events"
)

const (
	// reasonInputPrefix is followed by Refused, Unreachable or Conflict, and afterwards by Accepted or Gone.
	reasonInputPrefix = "Input"
	// maxPodsOfInput limits for how many pods of an input its event is repeated.
	maxPodsOfInput = 20
)

// eventRecorder is the part of events.Recorder that Inputs need.
type eventRecorder interface {
	Event(object corev1.ObjectReference, eventType, reason, message string)
}

// Inputs records events when inputs get into trouble or out of it. It is used by one goroutine.
type Inputs struct {
	to eventRecorder
	// trouble has the last reports of inputs in trouble.
	trouble map[inputKey]model.Input
}

type inputKey struct{ source, input string }

// NewInputs returns Inputs that record with a recorder.
func NewInputs(to eventRecorder) *Inputs { return &Inputs{to: to} }

// Record compares the reports of all inputs with the last ones, and records what has changed.
func (i *Inputs) Record(now []model.Input) {
	trouble := map[inputKey]model.Input{}
	gone := maps.Clone(i.trouble) // rarely more than a few, even if there are thousands of inputs
	for _, r := range now {
		key := inputKey{r.Source, r.Input}
		was, had := i.trouble[key]
		delete(gone, key)
		switch {
		case r.State == model.InputAccepted || r.State == model.InputIgnored:
			if had {
				i.record(r, corev1.EventTypeNormal, was.Pods)
			}
			continue
		case !had || was.State != r.State || strings.Join(was.Errors, "\n") != strings.Join(r.Errors, "\n"):
			i.record(r, corev1.EventTypeWarning, r.Pods)
		}
		trouble[key] = r
	}
	for _, was := range gone {
		i.to.Event(events.InputRef(was.Input), corev1.EventTypeNormal, reasonInputPrefix+"Gone", "It was removed")
	}
	i.trouble = trouble
}

// record records the state of an input, for the input and for the pods that keep running from its last good content.
func (i *Inputs) record(r model.Input, eventType string, pods []string) {
	reason, message := reasonInputPrefix+string(r.State), strings.Join(r.Errors, "\n")
	if eventType == corev1.EventTypeNormal {
		message = "It is " + strings.ToLower(string(r.State)) + " again"
	}
	i.to.Event(events.InputRef(r.Input), eventType, reason, message)
	message = printer.About(r.Input, message)
	for _, name := range pods[:min(len(pods), maxPodsOfInput)] {
		namespace, name, _ := strings.Cut(name, "/")
		i.to.Event(PodRef(manifests.Key{Namespace: namespace, Name: name}), eventType, reason, message)
	}
}
