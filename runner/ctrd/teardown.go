package ctrd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/manifests"
	"monopod/runner/ctrd/network"
)

// Back-off of a teardown that fails.
const (
	minTeardownDelay = time.Second
	maxTeardownDelay = 5 * time.Minute
)

// teardown takes apart, in the background, sandboxes that were given up and containers that came to nothing. It
// is a queue in memory; what it has to do is found again at the next start: sandboxes by their state label,
// containers because they never were started.
type teardown struct {
	r    *Runtime
	wake chan struct{}

	mu sync.Mutex
	// jobs by id of sandbox or container.
	jobs map[string]*job
}

// job is one thing to take apart.
type job struct {
	do    func(context.Context) error
	due   time.Time
	delay time.Duration
	busy  bool
	// again says that there is more to do since it has been begun.
	again bool
	// since is when it was queued, failed how often it has failed in a row, err why it did last.
	since  time.Time
	failed int
	err    error
}

func newTeardown(r *Runtime) *teardown {
	return &teardown{r: r, wake: make(chan struct{}, 1), jobs: map[string]*job{}}
}

// add queues a sandbox.
func (t *teardown) add(id string) {
	t.put(id, func(ctx context.Context) error { return t.r.teardownSandbox(ctx, id) })
}

// reclaim queues the directory of a claim.
func (t *teardown) reclaim(claim string) {
	t.put("claim "+claim, func(context.Context) error { return t.r.claims.Remove(claim) })
}

// discard queues a container.
func (t *teardown) discard(id string) {
	t.put(id, func(ctx context.Context) error { return t.r.removeContainer(ctx, id) })
}

func (t *teardown) put(id string, do func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.jobs[id]; j != nil {
		j.again = j.busy
		return
	}
	t.jobs[id] = &job{do: do, since: time.Now()}
	t.wakeUp()
}

func (t *teardown) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run does the jobs, some at once, until ctx ends; a failed one is tried again later.
func (t *teardown) run(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(cap(t.r.slots))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-t.wake:
		case <-timer.C:
		}
		for ctx.Err() == nil { // a job that fails because ctx ended is due again at once
			id, j := t.next(time.Now())
			if j == nil {
				break
			}
			g.Go(func() error {
				t.finish(ctx, id, j)
				return nil
			})
		}
		if d, ok := t.untilNext(time.Now()); ok {
			timer.Reset(d)
		}
	}
}

// next takes a job that is due.
func (t *teardown) next(now time.Time) (string, *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, j := range t.jobs {
		if !j.busy && !j.due.After(now) {
			j.busy, j.again = true, false
			return id, j
		}
	}
	return "", nil
}

func (t *teardown) untilNext(now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first time.Time
	for _, j := range t.jobs {
		if !j.busy && (first.IsZero() || j.due.Before(first)) {
			first = j.due
		}
	}
	return first.Sub(now), !first.IsZero()
}

// finish does a job and forgets it, or schedules it again.
func (t *teardown) finish(ctx context.Context, id string, j *job) {
	err := t.r.makingRoom(func() error { return j.do(ctx) })
	t.mu.Lock()
	defer t.mu.Unlock()
	j.busy = false
	switch {
	case err == nil && !j.again:
		delete(t.jobs, id)
		return
	case ctx.Err() != nil:
		return
	case err == nil:
		j.due = time.Time{}
		t.wakeUp()
		return
	}
	j.failed, j.err = j.failed+1, err
	j.delay = min(max(2*j.delay, minTeardownDelay), maxTeardownDelay)
	j.due = time.Now().Add(j.delay)
	t.r.log.Warn("teardown", "id", id, "err", err, "again_in", j.delay)
	t.wakeUp()
}

// has says that something of this id is to be taken apart.
func (t *teardown) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[id] != nil
}

// pending says how many jobs there are.
func (t *teardown) pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.jobs)
}

// finishUID takes apart now what is left of earlier sandboxes with this uid: a new one would share their directories.
func (t *teardown) finishUID(ctx context.Context, uid string) error {
	for _, rec := range t.r.index.list() {
		if rec.Labels.UID != uid || rec.Labels.State == sandboxActive {
			continue
		}
		if err := t.r.teardownSandbox(ctx, rec.ID); err != nil {
			return err
		}
	}
	return nil
}

// teardownSandbox takes a given-up sandbox apart; its record goes last, and stays if the next sandbox of the pod is about to be made: it
// tells the next agent so, and goes when that is there. Every step is idempotent.
func (r *Runtime) teardownSandbox(ctx context.Context, id string) error {
	defer r.locks.lock(id)()
	rec := r.index.sandboxByID(id)
	if rec == nil {
		return nil
	}
	if !rec.Apart {
		if err := r.takeApart(ctx, rec); err != nil {
			return err
		}
	}
	if r.keepRecord(id) {
		r.tellFreed()
		return nil
	}
	if err := ignoreNotFound(r.client.SandboxStore().Delete(ctx, id)); err != nil {
		return fmt.Errorf("delete record of sandbox %s: %w", id, err)
	}
	r.index.deleteSandbox(id)
	r.ids.release(id)
	r.watch.notify(rec.Labels.Key)
	r.tellFreed()
	return nil
}

// keepRecord says that the record of a sandbox that is taken apart has to stay for now.
func (r *Runtime) keepRecord(id string) bool {
	defer r.locks.lock("record " + id)()
	rec := r.index.sandboxByID(id)
	if rec == nil || !rec.Labels.Remade || r.index.sandbox(rec.Labels.Key) != nil {
		return false
	}
	next := *rec
	next.Apart = true
	r.index.putSandbox(&next)
	return true
}

// tellFreed has what others may wait for given to them.
func (r *Runtime) tellFreed() {
	if r.freed.Swap(false) {
		r.reclaim()
		r.watch.notify(manifests.Key{})
	}
}

// takeApart removes all of a sandbox but its record.
func (r *Runtime) takeApart(ctx context.Context, rec *sandboxRecord) error {
	r.adds.forget(rec.ID)
	for _, c := range r.index.ofSandbox(rec.ID) {
		if c.Labels.Exit != nil {
			continue // the record of a completed container may outlive its sandbox
		}
		if err := r.removeContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	if err := r.stopPause(ctx, rec.ID); err != nil {
		return err
	}
	if namespacesOf(rec.Pod.Object).Net {
		if err := r.teardownNetwork(ctx, rec); err != nil {
			return err
		}
	} else if err := r.net.Unclaim(rec.ID); err != nil {
		return err
	}
	if err := errors.Join(network.Unpin(r.nsDir(rec.ID)), r.dropImageVolumes(ctx, rec.ID)); err != nil || rec.Labels.KeepFiles {
		return errors.Join(err, removeTree(r.shmDir(rec.ID)))
	}
	return r.removePodDirs(ctx, rec)
}

func (r *Runtime) teardownNetwork(ctx context.Context, rec *sandboxRecord) error {
	done, err := r.netSlots.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	return wrap("undo network", r.net.Teardown(ctx, r.networkPod(rec)))
}

// removePodDirs removes the sandbox's shm and what belongs to the uid rather than the sandbox, unless another sandbox has taken
// that over. Logs stay as long as there are containers to ask for them.
func (r *Runtime) removePodDirs(ctx context.Context, rec *sandboxRecord) error {
	uid, trees := rec.Labels.UID, []string{r.shmDir(rec.ID)}
	err := r.removePodCgroup(ctx, rec)
	if r.index.uidInUse(uid, rec.ID) {
		return errors.Join(err, removeTree(trees...))
	}
	trees = append(trees, r.filesDir(uid))
	if len(r.index.ofUID(uid)) == 0 {
		trees = append(trees, r.podLogDir(rec.Labels.Key, uid))
	}
	return errors.Join(err, r.removePodDir(uid, trees...))
}
