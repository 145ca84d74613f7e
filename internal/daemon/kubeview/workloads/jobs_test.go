package workloads_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/kubeview/workloads"
	"monopod/runner/workload/saved"
)

func TestStatusOfJobs(t *testing.T) {
	begun, ended := start.Add(-time.Hour), start.Add(-time.Minute)
	indexed, yes := batchv1.IndexedCompletion, true
	for name, c := range map[string]struct {
		spec     batchv1.JobSpec
		progress *saved.Job
		pods     []*corev1.Pod
		want     string
	}{
		"not looked at": {want: "start 0s, active 0, ready 0, succeeded 0, failed 0"},
		"it runs": {
			progress: &saved.Job{Began: begun, Slots: []saved.Slot{{Started: true}}}, pods: []*corev1.Pod{pod("", "ready")},
			want: "start -1h0m0s, active 1, ready 1, succeeded 0, failed 0",
		},
		"of an older version": {
			progress: &saved.Job{Ran: time.Minute, Slots: []saved.Slot{{Started: true}}}, want: "start -1m0s, active 0, ready 0, succeeded 0, failed 0",
		},
		"one has failed": {
			progress: &saved.Job{Began: begun, Failed: 1, Slots: []saved.Slot{{Attempt: 1}}}, pods: []*corev1.Pod{pod("", "failed")},
			want: "start -1h0m0s, active 0, ready 0, succeeded 0, failed 1",
		},
		"complete": {
			progress: &saved.Job{Began: begun, Over: ended, Finished: saved.Complete, Slots: []saved.Slot{{Done: true}}}, pods: []*corev1.Pod{pod("", "succeeded")},
			want: "start -1h0m0s, active 0, ready 0, succeeded 1, failed 0, completed -1m0s, SuccessCriteriaMet True CompletionsReached -1m0s, Complete True CompletionsReached -1m0s",
		},
		"indexed": {
			spec:     batchv1.JobSpec{CompletionMode: &indexed},
			progress: &saved.Job{Began: begun, Slots: []saved.Slot{{Done: true}, {}, {Done: true}, {Done: true}, {Done: true}}},
			want:     "start -1h0m0s, active 0, ready 0, succeeded 4, failed 0, indexes 0,2-4",
		},
		"too many failures": {
			progress: &saved.Job{Began: begun, Over: ended, Finished: saved.Failed, Reason: batchv1.JobReasonBackoffLimitExceeded, Failed: 7, Slots: []saved.Slot{{}}},
			want:     "start -1h0m0s, active 0, ready 0, succeeded 0, failed 7, FailureTarget True BackoffLimitExceeded -1m0s, Failed True BackoffLimitExceeded -1m0s",
		},
		"too late": {
			progress: &saved.Job{Began: begun, Since: time.Second, Finished: saved.Failed, Reason: batchv1.JobReasonDeadlineExceeded, Slots: []saved.Slot{{}}}, pods: []*corev1.Pod{pod("", "ready")},
			want: "start -1h0m0s, active 0, ready 0, succeeded 0, failed 0, FailureTarget True DeadlineExceeded -1s, Failed True DeadlineExceeded -1s",
		},
		"suspended": {
			spec: batchv1.JobSpec{Suspend: &yes}, progress: &saved.Job{Began: begun, Slots: []saved.Slot{{}}},
			want: "active 0, ready 0, succeeded 0, failed 0, Suspended True JobSuspended 0s",
		},
		"resumed": {
			progress: &saved.Job{Began: begun, Resumed: true, Slots: []saved.Slot{{}}},
			want:     "start -1h0m0s, active 0, ready 0, succeeded 0, failed 0, Suspended False JobResumed -1h0m0s",
		},
	} {
		s := workloads.Job(moment(0), &batchv1.Job{Spec: c.spec}, c.pods, c.progress, nil)
		if got := jobText(&s); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
		if again := workloads.Job(moment(time.Hour), &batchv1.Job{Spec: c.spec}, c.pods, c.progress, &s); !reflect.DeepEqual(s, again) {
			t.Errorf("%s: an hour later\n%+v, before\n%+v", name, again, s)
		}
	}
}

// jobText writes a status as one line, with times since the start of the tests.
func jobText(s *batchv1.JobStatus) string {
	var out []string
	if s.StartTime != nil {
		out = append(out, "start "+s.StartTime.Sub(start).String())
	}
	out = append(out, fmt.Sprintf("active %d, ready %d, succeeded %d, failed %d", s.Active, *s.Ready, s.Succeeded, s.Failed))
	if s.CompletionTime != nil {
		out = append(out, "completed "+s.CompletionTime.Sub(start).String())
	}
	if s.CompletedIndexes != "" {
		out = append(out, "indexes "+s.CompletedIndexes)
	}
	for _, c := range s.Conditions {
		out = append(out, fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.LastTransitionTime.Sub(start)))
	}
	return strings.Join(out, ", ")
}

func TestResumedJobSaysSo(t *testing.T) {
	yes := true
	progress := &saved.Job{Began: start, Slots: []saved.Slot{{}}}
	s := workloads.Job(moment(0), &batchv1.Job{Spec: batchv1.JobSpec{Suspend: &yes}}, nil, progress, nil)
	s = workloads.Job(moment(time.Minute), &batchv1.Job{}, nil, progress, &s)
	if got := jobText(&s); got != "start 0s, active 0, ready 0, succeeded 0, failed 0, Suspended False JobResumed 1m0s" {
		t.Error(got)
	}
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0,1": {0, 1}, "0-2": {0, 1, 2}, "1,3-5,7,8": {1, 3, 4, 5, 7, 8}} {
		if got := workloads.Ranges(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}

func TestStatusOfCronJobs(t *testing.T) {
	if s := workloads.CronJob(nil, nil); s.LastScheduleTime != nil || len(s.Active) > 0 {
		t.Errorf("%+v", s)
	}
	gone := &saved.CronJob{Begun: start, Succeeded: start.Add(time.Second)} // all of its runs have expired
	if s := workloads.CronJob(gone, nil); !s.LastScheduleTime.Time.Equal(start) || !s.LastSuccessfulTime.Time.Equal(start.Add(time.Second)) {
		t.Errorf("%+v", s)
	}
	job := func(name string, end batchv1.JobConditionType, at time.Duration) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "uid-of-" + "x"}}
		if end != "" {
			j.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue}}
		}
		if end == batchv1.JobComplete {
			j.Status.CompletionTime = &metav1.Time{Time: start.Add(at)}
		}
		return j
	}
	progress := &saved.CronJob{Runs: []saved.Run{{Name: "a", At: start}, {Name: "b", At: start.Add(time.Minute)}}}
	s := workloads.CronJob(progress, []*batchv1.Job{job("a", batchv1.JobComplete, time.Hour), job("b", batchv1.JobFailed, 0), job("c", batchv1.JobComplete, time.Minute), job("d", "", 0)})
	if !s.LastScheduleTime.Time.Equal(start.Add(time.Minute)) || !s.LastSuccessfulTime.Time.Equal(start.Add(time.Hour)) {
		t.Errorf("%v %v", s.LastScheduleTime, s.LastSuccessfulTime)
	}
	if len(s.Active) != 1 || s.Active[0].Name != "d" || s.Active[0].Kind != "Job" || s.Active[0].UID == "" {
		t.Errorf("%+v", s.Active)
	}
}
