package shown

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/node/kubeapi/monopodv1"
)

// conditionAccepted is the condition of sources.
const conditionAccepted = "Accepted"

// SourceStatus returns the status of an input.
func SourceStatus(in *model.Input) monopodv1.SourceStatus {
	s := monopodv1.SourceStatus{
		Kind: in.Source, Location: in.Input, Verdict: string(in.State), Since: metav1.NewTime(in.Since), Pods: in.Pods, Objects: in.Objects,
		FromDisk: metav1.NewTime(in.FromDisk),
	}
	accepted := metav1.Condition{Type: conditionAccepted, Status: metav1.ConditionTrue, Reason: string(in.State), LastTransitionTime: s.Since}
	if in.State == model.InputAccepted || in.State == model.InputIgnored {
		s.Notes = in.Errors
	} else {
		s.Causes = sourceCauses(in)
		accepted.Status = metav1.ConditionFalse
		if len(in.Errors) > 0 {
			accepted.Message = in.Errors[0]
		}
	}
	if in.State == model.InputIgnored {
		accepted.Status = metav1.ConditionFalse
	}
	s.Conditions = []metav1.Condition{accepted}
	return s
}

// sourceCauses returns one cause per reported line of an input.
func sourceCauses(in *model.Input) []monopodv1.SourceCause {
	known := map[string]*model.Problem{}
	for i := range in.Problems {
		known[in.Problems[i].Text] = &in.Problems[i]
	}
	var again *metav1.Time
	if at := in.Retry.Time(); !at.IsZero() {
		again = new(metav1.NewTime(at).Rfc3339Copy())
	}
	var all []monopodv1.SourceCause
	for _, line := range in.Errors {
		c := monopodv1.SourceCause{
			Reason: cmp.Or(string(in.Cause.Fault), string(in.Cause.Kind), string(in.State)), File: in.Input, Message: line,
		}
		if p := known[line]; p != nil {
			c.Reason = string(in.State)
			if p.Type != "" {
				c.Reason = string(p.Type)
			}
			c.File, c.Line, c.Column, c.Field, c.Message, c.Hint = p.File, p.Line, p.Column, p.Field, p.Msg, p.Hint
			if id, ok := p.ID(); ok {
				c.Kind, c.Namespace, c.Name = id.Kind, id.Namespace, id.Name
			}
		}
		c.Message = strings.ToValidUTF8(c.Message[:min(len(c.Message), maxMessage)], "")
		c.RetryAt = again
		all = append(all, c)
	}
	return all
}

// maxMessage is the longest message of a cause, in bytes.
const maxMessage = 1000
