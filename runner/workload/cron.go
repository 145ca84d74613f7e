package workload

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"

	"monopod/manifests"
	"monopod/runner/workload/saved"
)

const (
	// leastYear is earlier than any machine with this program: a clock before it has not been set yet.
	leastYear = 2025
	// clockWentBack is how far the last run may lie in the future because the clock was slightly ahead. Beyond that, the clock was wrong at
	// that run.
	clockWentBack = 24 * time.Hour
	// maxActiveRuns is the maximum number of active runs of one CronJob: Jobs that never end could otherwise add one each minute.
	maxActiveRuns = 100
)

// cronJob returns the pods of the runs of a CronJob.
func (e *expansion) cronJob(w Workload, c *batchv1.CronJob) {
	schedule, err := manifests.CronSchedule(&c.Spec)
	if err != nil {
		e.problem(w, err)
		e.keep(w)
		if old := e.State.Crons[w.id()]; old != nil {
			e.out.State.Crons[w.id()] = old
		}
		return
	}
	st := &saved.CronJob{Origin: w.Origin}
	st.UID = w.identity()
	if old := e.State.Crons[w.id()]; old != nil && (old.UID == "" || w.UID == "" || old.UID == w.UID) {
		st.Last, st.Runs = old.Last, slices.Clone(old.Runs)
		st.Begun, st.Succeeded = old.LastRun(), old.Succeeded
	}
	e.out.State.Crons[w.id()] = st
	switch due, ok := e.due(st, schedule, &c.Spec); {
	case ok && c.Spec.ConcurrencyPolicy != batchv1.ReplaceConcurrent && st.Active() >= maxActiveRuns:
		st.Last = due
		e.problem(w, fmt.Errorf("the run of %s is skipped: %d runs have not completed; set concurrencyPolicy: Forbid or Replace, or activeDeadlineSeconds in its Jobs",
			due.Format(time.RFC3339), maxActiveRuns))
	case ok:
		beginRun(st, c, due)
	}
	e.runs(w, c, st)
}

// due returns the scheduled time to begin a run for now.
func (e *expansion) due(st *saved.CronJob, s cron.Schedule, spec *batchv1.CronJobSpec) (time.Time, bool) {
	now := e.Now
	if now.Year() < leastYear {
		return time.Time{}, false // a machine without a clock battery: the clock is set soon, and no run is missed until then
	}
	if st.Last.IsZero() || st.Last.Sub(now) > clockWentBack {
		st.Last = now.Round(0)
	}
	if next := s.Next(now); !next.IsZero() {
		e.wake(next)
	}
	at, ok := latest(s, now)
	if !ok || !at.After(st.Last) {
		return time.Time{}, false
	}
	if spec.Suspend != nil && *spec.Suspend {
		return time.Time{}, false
	}
	if d := spec.StartingDeadlineSeconds; d != nil && now.Sub(at) > time.Duration(*d)*time.Second {
		st.Last = at
		return time.Time{}, false
	}
	if spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && slices.ContainsFunc(st.Runs, saved.Run.Active) {
		return time.Time{}, false // it begins once the other one has ended, unless that is too late
	}
	return at, true
}

// latest returns the last scheduled time up to now. It searches back in steps, so that a clock that jumps by years costs nothing.
func latest(s cron.Schedule, now time.Time) (time.Time, bool) {
	for _, back := range []time.Duration{2 * time.Minute, time.Hour, 25 * time.Hour, 32 * 24 * time.Hour, 5 * 366 * 24 * time.Hour} {
		at := s.Next(now.Add(-back))
		if at.IsZero() || at.After(now) {
			continue
		}
		for next := s.Next(at); !next.IsZero() && !next.After(now); next = s.Next(at) {
			at = next
		}
		return at, true
	}
	return time.Time{}, false
}

// beginRun adds a run. With policy Replace it ends the active ones.
func beginRun(st *saved.CronJob, c *batchv1.CronJob, at time.Time) {
	if c.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
		st.Runs = slices.DeleteFunc(st.Runs, saved.Run.Active)
	}
	st.Last, st.Begun = at, at
	st.Runs = append(st.Runs, saved.Run{Name: c.Name + "-" + strconv.FormatInt(at.Unix()/60, 10), At: at})
}

// runs continues all runs, and drops old ones. An edit of the template applies to future runs.
func (e *expansion) runs(w Workload, c *batchv1.CronJob, st *saved.CronJob) {
	all := map[string]*jobRun{}
	for i := range st.Runs {
		spec := &c.Spec.JobTemplate.Spec
		job := st.Runs[i].Job
		if job == nil {
			job = e.begin(w, spec)
		} else {
			job = job.Clone()
		}
		run := e.run(w, st.Runs[i].Name, spec, job)
		run.ttl = spec.TTLSecondsAfterFinished
		st.Runs[i].Job = run.st
		run.advance()
		if run.st.Finished == saved.Complete && run.st.Over.After(st.Succeeded) {
			st.Succeeded = run.st.Over
		}
		all[run.name] = run
	}
	st.Runs = slices.DeleteFunc(st.Runs, func(r saved.Run) bool { return all[r.Name].expired() })
	st.Runs = forget(st.Runs, c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit)
	for _, r := range st.Runs {
		all[r.Name].list()
	}
}

// forget drops the oldest finished runs beyond the history limits, with their pods.
func forget(runs []saved.Run, successful, failed *int32) []saved.Run {
	left := map[string]int{saved.Complete: 3, saved.Failed: 1}
	if successful != nil {
		left[saved.Complete] = int(*successful)
	}
	if failed != nil {
		left[saved.Failed] = int(*failed)
	}
	var kept []saved.Run
	for _, r := range slices.Backward(runs) {
		if !r.Active() {
			if left[r.Job.Finished] <= 0 {
				continue
			}
			left[r.Job.Finished]--
		}
		kept = append(kept, r)
	}
	slices.Reverse(kept)
	return kept
}

// CronJobOf returns the progress of the CronJob of a document; nil: it has not begun.
func CronJobOf(s saved.State, doc *manifests.Object) *saved.CronJob {
	w := Of(doc)
	st := s.Crons[w.id()]
	if st != nil && w.UID != "" && st.UID != "" && st.UID != w.UID {
		return nil
	}
	return st
}
