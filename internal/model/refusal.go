package model

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// assigned is the type of the condition of a Service that does not get all that it asks for. Its message has the reasons, one on each line.
const assigned = "monopod.dev/Assigned"

// Refuse adds a reason to the condition of a Service.
func Refuse(s *corev1.Service, reason string, since metav1.Time) {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == assigned {
			c.Message += "\n" + reason
			return
		}
	}
	s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
		Type: assigned, Status: metav1.ConditionFalse, Reason: "NotAvailable", Message: reason, LastTransitionTime: since,
	})
}

// Refusal returns why a Service does not get all that it asks for, one reason on each line; empty: it does.
func Refusal(s *corev1.Service) string {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == assigned {
			return c.Message
		}
	}
	return ""
}
