package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
)

// Workloads holds what the expansion of workloads has found, and signals when to expand again.
type Workloads struct {
	changes *Changes
	wake    chan struct{}

	mu sync.Mutex
	// enabled: there are workloads, or there have been. The expander updates the pool from then on.
	enabled bool
	results map[string]string
	runs    map[string]time.Time
	clashes []workload.Clash
	// deleted are the pods that clients have deleted since the last expansion.
	deleted []manifests.Key
	// progress is the state of workloads, claims are those of StatefulSets. They are known once the stored state has been read.
	progress saved.State
	claims   []*manifests.Object
	// known: both have been worked out once.
	known bool
	// dropped are runs of CronJobs that clients have deleted and the expander has not dropped yet.
	dropped []saved.RunID
	// removed are the workloads that have been removed since the last expansion. They may be desired again.
	removed map[manifests.ObjectID]bool
	// expired are the Jobs that are to be deleted; gone receives a value when they change.
	expired []workload.Expired
	gone    chan struct{}
}

func newWorkloads(changes *Changes) *Workloads {
	return &Workloads{changes: changes, wake: make(chan struct{}, 1), gone: make(chan struct{}, 1)}
}

// Due receives a value when workloads have to be expanded again.
func (w *Workloads) Due() <-chan struct{} { return w.wake }

// Enable leaves updates of the pool to the expander from now on, and wakes it.
func (w *Workloads) Enable() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enabled = true
	w.signal()
}

// changed wakes the expander if it is enabled.
func (w *Workloads) changed() {
	if w.isEnabled() {
		w.signal()
	}
}

func (w *Workloads) isEnabled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enabled
}

func (w *Workloads) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// note records which workloads have been removed, and forgets their progress: one that is created again begins another run, even if no
// expansion happens in between.
func (w *Workloads) note(before, now model.Desired) {
	removed := removedWorkloads(before, now)
	if len(removed) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed == nil {
		w.removed = map[manifests.ObjectID]bool{}
	}
	maps.Copy(w.removed, removed)
	w.progress, w.results = w.progress.Without(removed), withoutJobs(w.results, removed)
}

// removedWorkloads returns those that are known to be gone.
func removedWorkloads(before, now model.Desired) map[manifests.ObjectID]bool {
	if len(before.Workloads) == 0 {
		return nil
	}
	desired := make(map[manifests.ObjectID]bool, len(now.Workloads))
	for _, o := range now.Workloads {
		desired[o.ID()] = true
	}
	removed := map[manifests.ObjectID]bool{}
	for _, o := range before.Workloads {
		if id := o.ID(); !desired[id] && now.Removable(o.Origin) {
			removed[id] = true
		}
	}
	return removed
}

func withoutJobs(results map[string]string, removed map[manifests.ObjectID]bool) map[string]string {
	return maps.Collect(func(yield func(string, string) bool) {
		for name, result := range results {
			namespace, job, _ := strings.Cut(name, "/")
			if !removed[manifests.ObjectID{Kind: "Job", Namespace: namespace, Name: job}] && !yield(name, result) {
				return
			}
		}
	})
}

// TakeRemoved returns the workloads that have been removed since the last call. The caller expands without them first.
func (w *Workloads) TakeRemoved() map[manifests.ObjectID]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	removed := w.removed
	w.removed = nil
	return removed
}

// SetExpired stores the Jobs that are to be deleted because their ttlSecondsAfterFinished has elapsed.
func (w *Workloads) SetExpired(all []workload.Expired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.expired, all) {
		return
	}
	w.expired = all
	select {
	case w.gone <- struct{}{}:
	default: // a signal is pending
	}
}

// Expired returns the Jobs that are to be deleted, and a channel that receives a value when there may be others. One caller uses it.
func (w *Workloads) Expired() ([]workload.Expired, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.expired, w.gone
}

// SetResults stores how Jobs have ended and when CronJobs last started a Job, both by "namespace/name".
func (w *Workloads) SetResults(results map[string]string, lastRuns map[string]time.Time) {
	w.mu.Lock()
	if w.runs = lastRuns; len(w.removed) > 0 {
		results = withoutJobs(results, w.removed)
	}
	same := maps.Equal(w.results, results)
	if !same {
		w.results = results
	}
	w.mu.Unlock()
	if !same {
		w.changes.Notify()
	}
}

// Finished returns how Jobs have ended, by "namespace/name".
func (w *Workloads) Finished() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.results
}

// LastRuns returns the scheduled times for which CronJobs last started a Job, by "namespace/name".
func (w *Workloads) LastRuns() map[string]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs
}

// podDeleted records that a client has deleted a pod of a workload, and wakes the expander.
func (w *Workloads) podDeleted(key manifests.Key) {
	w.mu.Lock()
	w.deleted = append(w.deleted, key)
	w.mu.Unlock()
	w.changed()
}

// TakeDeleted returns the pods that clients have deleted since the last call.
func (w *Workloads) TakeDeleted() []manifests.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.deleted
	w.deleted = nil
	return all
}

// SetExpanded stores the state of workloads, and the claims of StatefulSets. Neither is changed afterwards.
func (w *Workloads) SetExpanded(progress saved.State, claims []*manifests.Object) {
	w.mu.Lock()
	if len(w.removed) > 0 { // they were removed while it was worked out
		progress = progress.Without(w.removed)
	}
	same := w.known && sameProgress(w.progress, progress) && slices.Equal(w.claims, claims)
	w.progress, w.claims, w.known = progress, claims, true
	w.mu.Unlock()
	if !same {
		w.changes.Notify()
	}
}

// sameProgress reports whether two states have the same Jobs in the same states, and the same revisions; elapsed times do not count.
func sameProgress(a, b saved.State) bool {
	return maps.Equal(a.Histories, b.Histories) && maps.EqualFunc(a.Jobs, b.Jobs, saved.SameJob) && maps.EqualFunc(a.Crons, b.Crons, func(x, y *saved.CronJob) bool {
		return slices.EqualFunc(x.Runs, y.Runs, func(r, s saved.Run) bool { return r.Name == s.Name && saved.SameJob(r.Job, s.Job) })
	})
}

// Expanded returns the state of workloads, and the claims of StatefulSets. They must not be changed.
func (w *Workloads) Expanded() (progress saved.State, claims []*manifests.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress, w.claims
}

// Drop ends and forgets a run of a CronJob: its pods are removed, and it does not run again. This is durable once Expanded no longer returns
// the run.
func (w *Workloads) Drop(run saved.RunID) {
	w.mu.Lock()
	w.dropped = append(w.dropped, run)
	w.mu.Unlock()
	w.changed()
}

// TakeDropped returns the runs to drop since the last call.
func (w *Workloads) TakeDropped() []saved.RunID {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.dropped
	w.dropped = nil
	return all
}

// Has reports whether a run of a CronJob is known.
func (w *Workloads) Has(run saved.RunID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress.Has(run)
}

// Known reports whether workloads have been expanded since the start: before that, what Expanded returns is empty.
func (w *Workloads) Known() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// SetClashes stores which pods of workloads do not run because another pod has their name.
func (w *Workloads) SetClashes(all []workload.Clash) {
	w.mu.Lock()
	same := slices.Equal(w.clashes, all)
	w.clashes = all
	w.mu.Unlock()
	if !same {
		w.changes.Notify()
	}
}

// Clash returns why a pod of the workload that is written at a place is not run; empty if all are.
func (w *Workloads) Clash(at manifests.Origin) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clashes {
		if c.At == at {
			return fmt.Sprintf("pod %s is not run: another pod of that name is defined in %s; rename one of them", c.Pod, node.Position(c.By))
		}
	}
	return ""
}

// report adds the clashes to the reports of their inputs. It does not modify the given slice.
func (w *Workloads) report(reports []model.Input) []model.Input {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.clashes) == 0 {
		return reports
	}
	all := slices.Clone(reports)
	for _, c := range w.clashes {
		i := slices.IndexFunc(all, func(r model.Input) bool { return r.Source == c.At.Source && r.Input == c.At.File })
		if i < 0 {
			continue
		}
		r := &all[i]
		if r.State == model.InputAccepted {
			r.State = model.InputConflict
		}
		line := fmt.Sprintf("%s: pod %s of this workload is not run: another pod of that name is defined in %s; rename one of them", node.Position(c.At), c.Pod, node.Position(c.By))
		r.Errors = append(slices.Clone(r.Errors), line)
		r.Problems = append(slices.Clone(r.Problems), model.Problem{Text: line, Error: manifests.Error{
			File: c.At.File, Line: c.At.Line, Kind: "Pod", Pod: c.Pod.String(), Type: field.ErrorTypeDuplicate,
			Msg: "another pod of that name is defined in " + node.Position(c.By), Hint: "rename one of them",
		}})
	}
	return all
}
