package state

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"monopod/internal/model"
	"monopod/node"
	"monopod/runner/workload"
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
}

func newWorkloads(changes *Changes) *Workloads {
	return &Workloads{changes: changes, wake: make(chan struct{}, 1)}
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

// SetResults stores how Jobs have ended and when CronJobs last started a Job, both by "namespace/name".
func (w *Workloads) SetResults(results map[string]string, lastRuns map[string]time.Time) {
	w.mu.Lock()
	w.runs = lastRuns
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
	}
	return all
}
