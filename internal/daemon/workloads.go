package daemon

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/manifests"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/workload"
)

const (
	// seenWithin is how often is asked, after a start, whether all pods have been looked at.
	seenWithin = 20 * time.Millisecond
	// longestRest is the longest time for which changes of pods are gathered before workloads are looked at again: each look
	// goes through all pods, so that with thousands at most a quarter of the time is spent on it.
	longestRest = time.Second
)

// workloads keeps the pool at what documents and workloads together ask for.
type workloads struct {
	pool *pool.Pool
	// rollouts stands between the workloads and the pool.
	rollouts *rollout.Controller
	// seen says that each pod that was there at the start has been looked at.
	seen     bool
	expander *workload.Expander
	// last is what was handed on, lastSeen what it was made of.
	last, lastSeen model.Desired
	handed         bool
	claims         []*manifests.Object
	clashes        []workload.Clash
}

// followWorkloads expands the workloads whenever documents or pods have changed, until ctx ends. It sleeps while there
// are none and none have been.
func (a *App) followWorkloads(ctx context.Context, pool *pool.Pool) {
	x, err := workload.NewExpander(workload.NewStore(filepath.Join(a.cfg.RootDirectory, "workloads.json")), a.Log)
	if err != nil {
		a.Log.Error("read what Jobs have done", "err", err)
	}
	if !x.Idle() {
		a.Board.StartExpanding()
	}
	w := &workloads{pool: pool, rollouts: a.rollouts, expander: x}
	timer := time.NewTimer(pause.FarAway)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.Board.Expand:
		case <-timer.C:
		}
		wait, began := pause.FarAway, time.Now()
		if d, ok := a.Board.Wanted(pool); ok && !a.gate.ShuttingDown() { // else Jobs would count what is stopped as failed
			wait = w.update(began, d)
			a.Board.NoteJobs(x.Finished(), x.LastRuns())
			a.Board.NoteClashes(w.clashes)
		}
		timer.Reset(wait)
		pause.For(ctx, min(3*time.Since(began), longestRest))
	}
}

// update expands once and returns when to look again.
func (w *workloads) update(now time.Time, d model.Desired) time.Duration {
	if w.seen = w.seen || w.pool.Seen(); !w.seen {
		// What runs is not known yet, so nothing of a workload may be made or taken away.
		d.Incomplete = true
		if !w.handed || !slices.Equal(w.last.Pods, d.Pods) || !slices.Equal(w.last.Objects, d.Objects) {
			w.hand(d, d)
		}
		return seenWithin
	}
	var pods []workload.Observed
	for _, s := range w.pool.Pods() {
		pods = append(pods, workload.Observed{Status: s.Pod, Recorded: s.Recorded})
	}
	r := w.expander.Expand(now, d, pods)
	if to := d; !w.handed || !slices.Equal(w.claims, r.Claims) || !slices.Equal(w.lastSeen.Objects, d.Objects) || !w.lastSeen.SameRead(d) || !slices.Equal(w.last.Pods, r.Pods) {
		to.Pods, to.Objects, w.claims = r.Pods, slices.Concat(d.Objects, r.Claims), r.Claims
		w.hand(d, to)
	}
	w.clashes = r.Clashes
	if r.Next.IsZero() {
		return pause.FarAway
	}
	return max(r.Next.Sub(now), time.Millisecond)
}

// hand makes the rollouts and the pool follow to, which was made of d.
func (w *workloads) hand(d, to model.Desired) {
	w.lastSeen, w.last, w.handed = d, to, true
	w.rollouts.Update(to, w.pool.Update)
}
