package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

const (
	// firstRetry and lastRetry limit the back-off after a failed pod; it doubles with each failure.
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
	// keptPods is the number of ended pods that a Job keeps for their logs: they count against the maximum number of pods.
	keptPods = 5
	// defaultBackoffLimit is the default of Kubernetes.
	defaultBackoffLimit = 6
)

// Reasons of failed Jobs, spelled as in Kubernetes.
const (
	reasonBackoffLimit = "BackoffLimitExceeded"
	reasonDeadline     = "DeadlineExceeded"
)

// jobRun is a Job that is being expanded.
type jobRun struct {
	*expansion
	w    Workload
	name string
	spec *batchv1.JobSpec
	st   *JobState
	// restarts is the number of restarts of the containers of running pods.
	restarts int
	// ttl is nil for runs of CronJobs, whose history limits apply instead.
	ttl *int32
}

// job returns the pods of a Job document.
func (e *expansion) job(w Workload, j *batchv1.Job) {
	r := e.run(w, j.Name, &j.Spec, e.State.Jobs[w.id()])
	r.ttl = j.Spec.TTLSecondsAfterFinished
	e.out.State.Jobs[w.id()] = r.st
	r.advance()
	r.list()
}

// run continues a run, or begins one if this template has none.
func (e *expansion) run(w Workload, name string, spec *batchv1.JobSpec, old *JobState) *jobRun {
	rev := revision(spec.Template)
	st := &JobState{Revision: rev}
	if old != nil && old.Revision == rev {
		st = old.clone()
	}
	st.Origin = w.Origin
	if want := completions(spec); len(st.Slots) != want && st.Finished == "" {
		st.Slots = resized(st.Slots, want)
	}
	return &jobRun{expansion: e, w: w, name: name, spec: spec, st: st}
}

// completions returns how many pods must succeed. Without a number, one success is enough, and no pods are started after it.
func completions(spec *batchv1.JobSpec) int {
	if spec.Completions == nil {
		return number(spec.Parallelism)
	}
	return number(spec.Completions)
}

func resized(slots []Slot, n int) []Slot {
	for len(slots) < n {
		slots = append(slots, Slot{})
	}
	return slots[:n]
}

// advance updates the run to what has happened.
func (r *jobRun) advance() {
	r.count()
	if r.st.Finished == "" {
		r.collect()
		r.judge()
	}
}

// list adds the pods that should exist.
func (r *jobRun) list() {
	if r.st.Finished != "" {
		r.rest()
		return
	}
	r.work()
}

// count adds the time since the last expansion.
func (r *jobRun) count() {
	if !r.st.at.IsZero() && r.Now.After(r.st.at) {
		d := r.Now.Sub(r.st.at)
		if r.st.Finished != "" {
			r.st.Since += d
		} else if !r.suspended() {
			r.st.Ran += d
		}
	}
	r.st.at = r.Now
}

func (r *jobRun) suspended() bool { return r.spec.Suspend != nil && *r.spec.Suspend }

// podName returns the name of the pod of an attempt: each attempt is another pod.
func (r *jobRun) podName(slot int) string {
	name := r.name + "-" + strconv.Itoa(slot)
	if a := r.st.Slots[slot].Attempt; a > 0 {
		name += "-" + strconv.Itoa(a)
	}
	return name
}

// collect records the pods that have ended.
func (r *jobRun) collect() {
	for i := range r.st.Slots {
		s := &r.st.Slots[i]
		if s.Done || !s.Started {
			continue
		}
		name := r.podName(i)
		c := r.current(r.w, name)
		if !c.Settled || !r.stamp().on(c.Pod) {
			continue
		}
		switch c.Phase {
		case corev1.PodSucceeded:
			s.Done = true
			r.ended(name)
		case corev1.PodFailed:
			r.ended(name)
			s.Attempt++
			s.Started = false
			r.st.Failed++
			s.retry = r.Now.Add(min(lastRetry, firstRetry<<min(s.Attempt-1, 10)))
		default:
			r.restarts += c.Restarts
		}
	}
}

func (r *jobRun) ended(name string) {
	r.st.Ended = append(r.st.Ended, name)
	if n := len(r.st.Ended); n > keptPods {
		r.st.Ended = r.st.Ended[n-keptPods:]
	}
}

// judge decides whether the Job is over.
func (r *jobRun) judge() {
	limit := defaultBackoffLimit
	if r.spec.BackoffLimit != nil {
		limit = int(*r.spec.BackoffLimit)
	}
	deadline := r.spec.ActiveDeadlineSeconds
	switch {
	case r.complete():
		r.finish(Complete, "")
	case deadline != nil && r.st.Ran >= time.Duration(*deadline)*time.Second:
		r.finish(Failed, reasonDeadline)
	case r.st.Failed+r.restarts > limit:
		r.finish(Failed, reasonBackoffLimit)
	case deadline != nil && !r.suspended():
		r.wake(r.Now.Add(time.Duration(*deadline)*time.Second - r.st.Ran))
	}
}

// complete reports whether enough pods have succeeded: all, or for a work queue one after the others have ended as well.
func (r *jobRun) complete() bool {
	done, busy := 0, 0
	for _, s := range r.st.Slots {
		switch {
		case s.Done:
			done++
		case s.Started:
			busy++
		}
	}
	if r.spec.Completions == nil && len(r.st.Slots) > 0 {
		return done > 0 && busy == 0
	}
	return done == len(r.st.Slots)
}

func (r *jobRun) finish(how, reason string) {
	r.st.Finished, r.st.Reason, r.st.Since = how, reason, 0
}

// rest keeps the last pods of a finished Job until its TTL expires.
func (r *jobRun) rest() {
	if r.ttl != nil {
		left := time.Duration(*r.ttl)*time.Second - r.st.Since
		if left <= 0 {
			r.st.Ended = nil
			return
		}
		r.wake(r.Now.Add(left))
	}
	r.keepEnded()
}

// keepEnded lists the ended pods that still exist: they are not recreated.
func (r *jobRun) keepEnded() {
	for _, name := range r.st.Ended {
		if c := r.current(r.w, name); c.Pod != nil {
			r.out.Pods = append(r.out.Pods, c.Pod)
		}
	}
}

// work lists the pods that should run, at most as many as the Job allows concurrently.
func (r *jobRun) work() {
	r.keepEnded()
	if r.suspended() {
		for i := range r.st.Slots {
			r.st.Slots[i].Started = false
		}
		return
	}
	succeeded := slices.ContainsFunc(r.st.Slots, func(s Slot) bool { return s.Done })
	free := number(r.spec.Parallelism)
	for _, started := range []bool{true, false} { // running pods keep their places
		for i := range r.st.Slots {
			s := &r.st.Slots[i]
			if s.Done || s.Started != started || free == 0 {
				continue
			}
			if !started && !r.mayBegin(s, succeeded) {
				continue
			}
			p, err := r.slotPod(i)
			if err != nil {
				r.problem(r.w, err)
				return
			}
			free--
			s.Started = true
			r.out.Pods = append(r.out.Pods, p)
		}
	}
}

// mayBegin reports whether the pod of a slot may be created now.
func (r *jobRun) mayBegin(s *Slot, succeeded bool) bool {
	switch {
	case r.spec.Completions == nil && succeeded:
		return false // the work queue is empty
	case s.retry.After(r.Now):
		r.wake(s.retry)
		return false
	}
	return true
}

func (r *jobRun) stamp() stamp { return stamp{"pod-template-hash", r.st.Revision} }

// slotPod returns the pod of a slot. An existing one stays as it is: templates of Jobs do not change.
func (r *jobRun) slotPod(slot int) (*manifests.Pod, error) {
	if c := r.current(r.w, r.podName(slot)); r.stamp().on(c.Pod) {
		return c.Pod, nil
	}
	return r.pod(r.w, r.spec.Template, r.podName(slot), r.stamp(), func(p *corev1.Pod) {
		uid := string(uidOf(r.w))
		for _, l := range []struct{ key, value string }{
			{batchv1.JobNameLabel, r.name},
			{"job-name", r.name},
			{batchv1.ControllerUidLabel, uid},
			{"controller-uid", uid},
		} {
			p.Labels[l.key] = l.value
		}
		if r.spec.CompletionMode != nil && *r.spec.CompletionMode == batchv1.IndexedCompletion {
			r.index(p, strconv.Itoa(slot))
		}
	})
}

// index sets the completion index of an Indexed pod, in the three ways of Kubernetes.
func (r *jobRun) index(p *corev1.Pod, n string) {
	p.Labels[batchv1.JobCompletionIndexAnnotation] = n
	p.Annotations[batchv1.JobCompletionIndexAnnotation] = n
	p.Spec.Hostname = cmp.Or(p.Spec.Hostname, r.name+"-"+n)
	env := corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", batchv1.JobCompletionIndexAnnotation)},
	}}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(v corev1.EnvVar) bool { return v.Name == env.Name }) {
				list[i].Env = append(list[i].Env, env)
			}
		}
	}
}
