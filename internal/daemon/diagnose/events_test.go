package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhetherOutputIsDroppedFollowsFromTheEvents(t *testing.T) {
	ev := func(reason string, second int) corev1.Event {
		return corev1.Event{Reason: reason, Message: reason, LastTimestamp: metav1.Unix(int64(second), 0)}
	}
	for name, c := range map[string]struct {
		all  []corev1.Event
		want string
	}{
		"nothing":  {},
		"others":   {[]corev1.Event{ev("Pulled", 1)}, ""},
		"dropped":  {[]corev1.Event{ev("LogsResumed", 1), ev("LogsDropped", 2), ev("Started", 3)}, "LogsDropped"},
		"over":     {[]corev1.Event{ev("LogsDropped", 2), ev("LogsResumed", 2)}, ""},
		"repeated": {[]corev1.Event{ev("LogsDropped", 5), ev("LogsResumed", 2)}, "LogsDropped"},
	} {
		if got := unsettled(c.all, "LogsDropped", "LogsResumed"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
