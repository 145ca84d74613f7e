package workloads

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/runner/workload/saved"
)

// Job returns the status of a Job. progress is nil until its pods have been computed for the first time.
func Job(m *Moment, j *batchv1.Job, pods []*corev1.Pod, progress *saved.Job, before *batchv1.JobStatus) batchv1.JobStatus {
	t := Count(m, pods, "", 0)
	s := batchv1.JobStatus{UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}, Ready: &t.Ready, Terminating: &t.Terminating, Active: t.Replicas}
	suspended := j.Spec.Suspend != nil && *j.Spec.Suspend
	if before == nil {
		before = &batchv1.JobStatus{}
	}
	if progress == nil {
		if !suspended {
			s.StartTime = &metav1.Time{Time: m.Now}
			if before.StartTime != nil {
				s.StartTime = before.StartTime
			}
		}
		return s
	}
	if !suspended || progress.Finished != "" {
		s.StartTime = startOf(m, pods, progress, before)
	}
	s.Failed = int32(progress.Failed)
	var done []int
	for i, slot := range progress.Slots {
		if slot.Done {
			done = append(done, i)
		}
	}
	s.Succeeded = int32(len(done))
	if j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion {
		s.CompletedIndexes = Ranges(done)
	}
	s.Conditions = jobConditions(m, progress, suspended, before)
	if progress.Finished != "" {
		s.Active, s.Ready = 0, new(int32)
	}
	if progress.Finished == saved.Complete {
		at := over(m, progress)
		s.CompletionTime = &at
		if before.CompletionTime != nil {
			s.CompletionTime = before.CompletionTime
		}
	}
	return s
}

// startOf returns when a Job was started, which states of older versions do not contain.
func startOf(m *Moment, pods []*corev1.Pod, progress *saved.Job, before *batchv1.JobStatus) *metav1.Time {
	if !progress.Began.IsZero() {
		return &metav1.Time{Time: progress.Began}
	}
	if before.StartTime != nil {
		return before.StartTime
	}
	start := &metav1.Time{Time: m.Now.Add(-progress.Ran)}
	for _, p := range pods {
		if at := p.Status.StartTime; at != nil && at.Before(start) {
			start = at
		}
	}
	return start
}

func over(m *Moment, progress *saved.Job) metav1.Time {
	if progress.Over.IsZero() {
		return metav1.NewTime(m.Now.Add(-progress.Since))
	}
	return metav1.NewTime(progress.Over)
}

// jobConditions returns the conditions in the order in which Kubernetes adds them.
func jobConditions(m *Moment, progress *saved.Job, suspended bool, before *batchv1.JobStatus) []batchv1.JobCondition {
	var all []batchv1.JobCondition
	add := func(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string, at metav1.Time) {
		c := batchv1.JobCondition{Type: kind, Status: status, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at}
		if i := slices.IndexFunc(before.Conditions, func(o batchv1.JobCondition) bool { return o.Type == kind && o.Status == status }); i >= 0 {
			c.LastProbeTime, c.LastTransitionTime = before.Conditions[i].LastProbeTime, before.Conditions[i].LastTransitionTime
		}
		all = append(all, c)
	}
	wasSuspended := slices.ContainsFunc(before.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	now := metav1.NewTime(m.Now)
	switch {
	case progress.Finished == "" && suspended:
		add(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", now)
	case progress.Resumed && !progress.Suspended:
		add(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", metav1.NewTime(progress.Began))
	case wasSuspended:
		add(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", now)
	}
	at := over(m, progress)
	switch progress.Finished {
	case saved.Complete:
		const message = "Reached expected number of succeeded pods"
		add(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached, message, at)
		add(batchv1.JobComplete, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached, message, at)
	case saved.Failed:
		message := "Job has reached the specified backoff limit"
		if progress.Reason == batchv1.JobReasonDeadlineExceeded {
			message = "Job was active longer than specified deadline"
		}
		add(batchv1.JobFailureTarget, corev1.ConditionTrue, progress.Reason, message, at)
		add(batchv1.JobFailed, corev1.ConditionTrue, progress.Reason, message, at)
	}
	return all
}

// Ranges formats ascending numbers like the completed indexes in Kubernetes: 1,3-5.
func Ranges(numbers []int) string {
	var out []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		text := strconv.Itoa(numbers[i])
		switch last - i {
		case 0:
		case 1:
			text += "," + strconv.Itoa(numbers[last])
		default:
			text += "-" + strconv.Itoa(numbers[last])
		}
		out = append(out, text)
		i = last + 1
	}
	return strings.Join(out, ",")
}

// CronJob returns the status of a CronJob. jobs are the Jobs of its runs.
func CronJob(progress *saved.CronJob, jobs []*batchv1.Job) batchv1.CronJobStatus {
	var s batchv1.CronJobStatus
	if progress == nil {
		return s
	}
	if at := progress.LastRun(); !at.IsZero() {
		s.LastScheduleTime = &metav1.Time{Time: at}
	}
	if at := progress.Succeeded; !at.IsZero() {
		s.LastSuccessfulTime = &metav1.Time{Time: at}
	}
	for _, j := range jobs {
		if at := j.Status.CompletionTime; at != nil && (s.LastSuccessfulTime == nil || s.LastSuccessfulTime.Before(at)) {
			s.LastSuccessfulTime = at
		}
		if !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
		}) {
			s.Active = append(s.Active, corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID})
		}
	}
	return s
}
