package fields

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestConditions(t *testing.T) {
	began := time.Now()
	s := &Seen{
		Pod: &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "c", RestartCount: 2, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "why\n"}}},
				{Name: "other", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
			},
		}},
		Dir: t.TempDir(), Now: began.Add(5 * time.Second),
		Requests: []*Request{{At: began, To: "127.0.0.1"}, {At: began.Add(time.Second), Proto: 2}},
	}
	for condition, want := range map[Condition]bool{
		"phase Failed": true, "phase Succeeded": false, "!phase Succeeded": true, "phase Succeeded | reason Evicted": true, "reason x | ready": false,
		"exit 3": true, "exit 0": false, "ended": true, "message why\n": true, "restarts c 2": true, "restarts other 2": false, "restarted other": false,
		"waits ErrImagePull": false, "container other": true, "container none": false, "terminated other": false, "exists f": false, "file f x": false,
		"requests 2": true, "requests 3": false, "other-requests 1": false, "request tcp": true, "request http2": false, "interval 2s": true, "interval 1s": false,
		"since-request 4s": true, "since-request 5s": false, "took 0s": false, "gone": false, "memory-limit 1Mi": false, "qdisc-known pod": false,
	} {
		if err := condition.check(); err != nil {
			t.Error(err)
		}
		if got := condition.met(s); got != want {
			t.Errorf("%q is %v", condition, got)
		}
	}
}

func TestAVerdictNeedsItsConditions(t *testing.T) {
	running := &Seen{Pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}}
	failed := &Seen{Pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}}
	for name, c := range map[string]struct {
		row  Row
		seen *Seen
		want Verdict
	}{
		"by default the phase decides":       {Row{}, failed, Fails},
		"a pod that runs is undecided":       {Row{}, running, Undecided},
		"once is not met yet":                {Row{Once: Conditions{"phase Failed"}, Holds: Conditions{"phase Running"}}, running, Undecided},
		"once is met, and holds is not":      {Row{Once: Conditions{"phase Failed"}, Holds: Conditions{"phase Running"}}, failed, Fails},
		"without fails, a row does not fail": {Row{Holds: Conditions{"phase Succeeded"}}, failed, Undecided},
		"holds comes before fails":           {Row{Holds: Conditions{"phase Failed"}, Fails: Conditions{"phase Failed"}}, failed, Holds},
	} {
		if got := c.row.Check(c.seen); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAnUnknownWordIsRefused(t *testing.T) {
	for _, text := range []string{
		"rows: [{name: r, fields: kind, holds: [phases Failed]}]", "rows: [{name: r, fields: kind, hold: [ended]}]",
	} {
		if rows, err := parseRows([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, rows)
		}
	}
}
