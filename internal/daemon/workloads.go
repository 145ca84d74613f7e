package daemon

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/manifests"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
)

const (
	// seenWithin is the interval of polling, after a start, whether all pods have been observed.
	seenWithin = 20 * time.Millisecond
	// longestRest limits the pause after an expansion. Each expansion goes through all pods: with thousands of pods the pause
	// is three times as long as the expansion.
	longestRest = time.Second
)

// workloads keeps the pool updated with the desired pods and those of workloads.
type workloads struct {
	pool *pool.Pool
	// handTo passes desired pods to the pool.
	handTo func(model.Desired)
	// rollouts passes the pods to the pool.
	rollouts *rollout.Controller
	// seen is true once each existing pod has been observed.
	seen     bool
	expander *workload.Expander
	// deleted returns the pods that clients have deleted since the last call.
	deleted func() []manifests.Key
	// last is the state passed on last, which was derived from lastSeen; handed is false before that.
	last, lastSeen model.Desired
	handed         bool
	claims         []*manifests.Object
	clashes        []workload.Clash
	expired        []workload.Expired
}

// followWorkloads expands the workloads whenever desired objects or pods have changed, until ctx ends. It sleeps if there
// have never been workloads.
func followWorkloads(ctx context.Context, c *core, pool *pool.Pool) {
	x, err := workload.NewExpander(saved.NewStore(filepath.Join(c.cfg.RootDirectory, "workloads.json")), c.deps.Log)
	if err != nil {
		c.deps.Log.Error("read the state of workloads", "err", err)
	}
	x.Spaces = c.cfg.Spaces()
	_, claims := c.state.Workloads.Expanded() // those of before containerd was restarted
	c.state.Workloads.SetExpanded(x.State(), claims)
	if !x.Idle() {
		c.state.Workloads.Enable()
	}
	w := &workloads{pool: pool, handTo: c.state.Feed(pool), rollouts: c.state.Rollouts, expander: x, deleted: c.state.Workloads.TakeDeleted}
	timer := time.NewTimer(pause.FarAway)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.state.Workloads.Due():
		case <-timer.C:
		}
		wait, began := pause.FarAway, time.Now()
		if d, ok := c.state.Expandable(pool); ok && !c.gate.ShuttingDown() { // during a shutdown, Jobs would count stopped pods as failed
			x.Drop(c.state.Workloads.TakeDropped())
			wait = w.update(began, d, c.state.Workloads.TakeRemoved)
			c.state.Workloads.SetResults(x.Finished(), x.LastRuns())
			c.state.Workloads.SetClashes(w.clashes)
			if w.seen {
				c.state.Workloads.SetExpanded(x.State(), w.claims)
			}
			c.state.Workloads.SetExpired(w.expired)
		}
		timer.Reset(wait)
		pause.For(ctx, min(3*time.Since(began), longestRest))
	}
}

// update expands once and returns when to do so again. removed returns the workloads that have been removed since the last time.
func (w *workloads) update(now time.Time, d model.Desired, removed func() map[manifests.ObjectID]bool) time.Duration {
	if w.seen = w.seen || w.pool.Seen(); !w.seen {
		// It is not known yet what runs, so no pod of a workload may be created or removed.
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
	if gone := removed(); len(gone) > 0 { // some may have been created again: they do not continue what is gone
		without := d
		without.Workloads = slices.DeleteFunc(slices.Clone(d.Workloads), func(o *manifests.Object) bool { return gone[o.ID()] })
		w.expander.Expand(now, without, pods)
	}
	w.expander.Deleted(w.deleted())
	r := w.expander.Expand(now, d, pods)
	if to := d; !w.handed || !slices.Equal(w.claims, r.Claims) || !slices.Equal(w.lastSeen.Objects, d.Objects) || !w.lastSeen.SameRead(d) || !slices.Equal(w.last.Pods, r.Pods) {
		to.Pods, to.Objects, w.claims = r.Pods, slices.Concat(d.Objects, r.Claims), r.Claims
		w.hand(d, to)
	}
	w.clashes, w.expired = r.Clashes, slices.DeleteFunc(r.Expired, func(e workload.Expired) bool { return e.Origin.Source != config.SourceApplied })
	if r.Next.IsZero() {
		return pause.FarAway
	}
	return max(r.Next.Sub(now), time.Millisecond)
}

// hand passes to, which was derived from d, to the rollouts and the pool.
func (w *workloads) hand(d, to model.Desired) {
	w.lastSeen, w.last, w.handed = d, to, true
	w.rollouts.Update(to, w.handTo)
}
