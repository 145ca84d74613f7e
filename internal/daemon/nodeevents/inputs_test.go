package nodeevents

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

func TestWhichInputsAreToldOf(t *testing.T) {
	report := func(state model.InputState, errs ...string) model.Input {
		return model.Input{Source: "file", Input: "/m/a.yaml", State: state, Errors: errs, Pods: []string{"x/a"}}
	}
	var told []string
	r := recorderFunc(func(o corev1.ObjectReference, eventType, reason, message string) {
		told = append(told, fmt.Sprint(eventType[:1], " ", reason, " ", o.Kind, " ", o.Namespace, "/", o.Name, " ", message))
	})
	inputs := NewInputs(r)
	for _, step := range []struct {
		now  []model.Input
		want string
	}{
		{[]model.Input{report(model.InputAccepted)}, ""},
		{[]model.Input{report(model.InputRefused, "/m/a.yaml:3: bad", "/m/a.yaml:4: worse")}, "W InputRefused Input //m/a.yaml /m/a.yaml:3: bad\n/m/a.yaml:4: worse|W InputRefused Pod x/a /m/a.yaml:3: bad\n/m/a.yaml:4: worse"},
		{[]model.Input{report(model.InputRefused, "/m/a.yaml:3: bad", "/m/a.yaml:4: worse")}, ""},
		{[]model.Input{report(model.InputUnreachable, "no such host")}, "W InputUnreachable Input //m/a.yaml no such host|W InputUnreachable Pod x/a /m/a.yaml: no such host"},
		{[]model.Input{report(model.InputAccepted)}, "N InputAccepted Input //m/a.yaml It is accepted again|N InputAccepted Pod x/a /m/a.yaml: It is accepted again"},
		{[]model.Input{report(model.InputAccepted)}, ""},
		{[]model.Input{report(model.InputConflict, "twice")}, "W InputConflict Input //m/a.yaml twice|W InputConflict Pod x/a /m/a.yaml: twice"},
		{nil, "N InputGone Input //m/a.yaml It was removed"},
		{nil, ""},
	} {
		told = nil
		inputs.Record(step.now)
		if got := strings.Join(told, "|"); got != step.want {
			t.Errorf("%+v:\n%s\nwanted\n%s", step.now, got, step.want)
		}
	}
	many := report(model.InputRefused, "bad")
	for i := range 100 {
		many.Pods = append(many.Pods, fmt.Sprint("x/", i))
	}
	told = nil
	NewInputs(r).Record([]model.Input{many})
	if len(told) != 1+maxPodsOfInput {
		t.Errorf("%d events of one input", len(told))
	}
}

// recorderFunc is an eventRecorder.
type recorderFunc func(corev1.ObjectReference, string, string, string)

func (f recorderFunc) Event(o corev1.ObjectReference, eventType, reason, message string) {
	f(o, eventType, reason, message)
}
