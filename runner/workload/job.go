package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/runner/workload/saved"
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
	st   *saved.Job
	// restarts is the number of restarts of the containers of running pods.
	restarts int
	// ttl is ttlSecondsAfterFinished; nil: it stays.
	ttl *int32
}

// job returns the pods of a Job document.
func (e *expansion) job(w Workload, j *batchv1.Job) {
	st := e.progress(w, &j.Spec, e.State.Jobs[w.id()])
	r := e.run(w, j.Name, &j.Spec, st)
	r.ttl = j.Spec.TTLSecondsAfterFinished
	e.out.State.Jobs[w.id()] = r.st
	r.advance()
	r.list()
	if r.expired() {
		e.out.Expired = append(e.out.Expired, Expired{Namespace: j.Namespace, Name: j.Name, UID: w.UID, Origin: w.Origin, TTL: *r.ttl})
	}
}

// progress returns the state of the run of a document: the stored one, or that of another run if it belongs to another Job, or the template has
// changed so much.
func (e *expansion) progress(w Workload, spec *batchv1.JobSpec, old *saved.Job) *saved.Job {
	rev := revision(spec.Template)
	if !continues(old, w, spec, rev) {
		return e.begin(w, spec)
	}
	st := old.Clone()
	if st.Fixed == "" {
		st.Fixed = fixed(w, spec)
	}
	st.UID, st.Written = w.identity(), rev
	if rev == st.Revision {
		st.Written = ""
	}
	return st
}

// JobOf returns the progress of the Job of a document, whose template has the given revision; nil: it has not begun. The state may have that
// of an earlier document of the same name.
func JobOf(s saved.State, doc *manifests.Object, revision string) *saved.Job {
	w := Of(doc)
	job, ok := doc.Object.(*batchv1.Job)
	if st := s.Jobs[w.id()]; ok && continues(st, w, &job.Spec, revision) {
		return st
	}
	return nil
}

// continues reports whether a run is that of a document, whose template has the given revision.
func continues(j *saved.Job, w Workload, spec *batchv1.JobSpec, rev string) bool {
	switch {
	case j == nil, j.UID != "" && w.UID != "" && j.UID != w.UID:
		return false
	case cmp.Or(j.Written, j.Revision) == rev:
		return true
	}
	return j.Fixed != "" && j.Fixed == fixed(w, spec)
}

// begin returns the state of a run that begins now.
func (e *expansion) begin(w Workload, spec *batchv1.JobSpec) *saved.Job {
	return &saved.Job{UID: w.identity(), Revision: revision(spec.Template), Fixed: fixed(w, spec), Began: e.Now.Round(0)}
}

// fixed returns a hash of what cannot change in the template of a Job without another run. Defaults and generated labels are no change: clients
// of the Kubernetes API write them, too. A Job that the API has made is the same one as long as it has its uid, so that what Kubernetes lets
// change in a suspended Job does not count; an edit of any other manifest runs it again.
func fixed(w Workload, spec *batchv1.JobSpec) string {
	t := spec.Template.DeepCopy()
	restart := t.Spec.RestartPolicy
	defaults.Template(&t.Spec)
	t.Spec.RestartPolicy = restart
	t.ObjectMeta = metav1.ObjectMeta{Labels: t.Labels, Annotations: t.Annotations}
	if spec.ManualSelector == nil || !*spec.ManualSelector {
		for _, key := range GeneratedLabels() {
			delete(t.Labels, key)
		}
	}
	if w.UID != "" {
		t.Labels, t.Annotations = nil, nil
		t.Spec.NodeSelector, t.Spec.Tolerations, t.Spec.Affinity, t.Spec.SchedulingGates = nil, nil, nil, nil
		for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
			for i := range list {
				list[i].Resources = corev1.ResourceRequirements{}
			}
		}
	}
	if len(t.Labels) == 0 {
		t.Labels = nil
	}
	if len(t.Annotations) == 0 {
		t.Annotations = nil
	}
	return revision(*t)
}

// GeneratedLabels returns the keys of the labels that Kubernetes adds to the template of a Job without manualSelector.
func GeneratedLabels() []string {
	return []string{batchv1.ControllerUidLabel, "controller-uid", batchv1.JobNameLabel, "job-name"}
}

// run continues a run with a state, which it changes.
func (e *expansion) run(w Workload, name string, spec *batchv1.JobSpec, st *saved.Job) *jobRun {
	st.Origin = w.Origin
	if want := completions(spec); len(st.Slots) != want && st.Finished == "" {
		st.Slots = resized(st.Slots, want, spec.Completions == nil)
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

// resized returns n slots. A work queue keeps those that have begun: what has succeeded counts whatever its parallelism is now.
func resized(slots []saved.Slot, n int, queue bool) []saved.Slot {
	for len(slots) < n {
		slots = append(slots, saved.Slot{})
	}
	if !queue {
		return slots[:n]
	}
	for len(slots) > n && slots[len(slots)-1] == (saved.Slot{}) {
		slots = slots[:len(slots)-1]
	}
	return slots
}

// advance updates the run to what has happened.
func (r *jobRun) advance() {
	r.count()
	r.suspend()
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
	if !r.st.At.IsZero() && r.Now.After(r.st.At) {
		d := r.Now.Sub(r.st.At)
		if r.st.Finished != "" {
			r.st.Since += d
		} else if !r.suspended() {
			r.st.Ran += d
		}
	}
	r.st.At = r.Now
}

// suspend records that the run is suspended or resumed. As in Kubernetes, the time until a deadline begins again when it is resumed.
func (r *jobRun) suspend() {
	switch {
	case r.st.Finished != "" || r.suspended() == r.st.Suspended:
	case r.suspended():
		r.st.Suspended, r.st.Ran, r.st.Began = true, 0, time.Time{}
	default:
		r.st.Suspended, r.st.Resumed, r.st.Ran, r.st.Began = false, true, 0, r.Now.Round(0)
	}
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
			s.Retry = r.Now.Add(min(lastRetry, firstRetry<<min(s.Attempt-1, 10)))
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
		r.finish(saved.Complete, "")
	case deadline != nil && r.st.Ran >= time.Duration(*deadline)*time.Second:
		r.finish(saved.Failed, reasonDeadline)
	case r.st.Failed > limit || r.restarts > 0 && r.restarts >= limit:
		r.finish(saved.Failed, reasonBackoffLimit)
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
	if r.spec.Completions == nil {
		return done > 0 && busy == 0
	}
	return done == len(r.st.Slots)
}

func (r *jobRun) finish(how, reason string) {
	r.st.Finished, r.st.Reason, r.st.Since, r.st.Over = how, reason, 0, r.Now.Round(0)
}

// rest keeps the last pods of a finished Job until its TTL expires.
func (r *jobRun) rest() {
	if r.expired() {
		r.st.Ended = nil
		return
	}
	if r.ttl != nil {
		r.wake(r.Now.Add(time.Duration(*r.ttl)*time.Second - r.st.Since))
	}
	r.keepEnded()
}

// expired reports whether the TTL of a finished Job has elapsed.
func (r *jobRun) expired() bool {
	return r.ttl != nil && r.st.Finished != "" && r.st.Since >= time.Duration(*r.ttl)*time.Second
}

// keepEnded lists the ended pods that still exist, except those that clients have deleted: none is recreated.
func (r *jobRun) keepEnded() {
	for _, name := range r.st.Ended {
		if c := r.current(r.w, name); c.Pod != nil && !c.Deleted {
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
	succeeded := slices.ContainsFunc(r.st.Slots, func(s saved.Slot) bool { return s.Done })
	free := number(r.spec.Parallelism)
	listed := map[int]bool{}
	for _, started := range []bool{true, false} { // running pods keep their places
		for i := range r.st.Slots {
			s := &r.st.Slots[i]
			if s.Done || s.Started != started || listed[i] || free == 0 {
				continue
			}
			if !started && !r.mayBegin(s, succeeded) {
				continue
			}
			p, err := r.slotPod(i)
			if err != nil {
				r.problem(r.w, err)
				continue
			}
			free--
			s.Started, listed[i] = true, true
			r.out.Pods = append(r.out.Pods, p)
		}
	}
	for i := range r.st.Slots {
		if s := &r.st.Slots[i]; !s.Done && !listed[i] {
			s.Started = false // its pod is removed
		}
	}
}

// mayBegin reports whether the pod of a slot may be created now.
func (r *jobRun) mayBegin(s *saved.Slot, succeeded bool) bool {
	switch {
	case r.spec.Completions == nil && succeeded:
		return false // the work queue is empty
	case s.Retry.After(r.Now):
		r.wake(s.Retry)
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
