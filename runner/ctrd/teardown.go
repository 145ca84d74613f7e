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
	if t.jobs[id] != nil {
		return
	}
	t.jobs[id] = &job{do: do}
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
			j.busy = true
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
	if err == nil {
		delete(t.jobs, id)
		return
	}
	if ctx.Err() != nil {
		return
	}
	j.delay = min(max(2*j.delay, minTeardownDelay), maxTeardownDelay)
	j.due = time.Now().Add(j.delay)
	t.r.log.Warn("teardown", "id", id, "err", err, "again_in", j.delay)
	select {
	case t.wake <- struct{}{}:
	default:
	}
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

// teardownSandbox takes a given-up sandbox apart; its record goes last. Every step is idempotent.
func (r *Runtime) teardownSandbox(ctx context.Context, id string) error {
	defer r.locks.lock(id)()
	rec := r.index.sandboxByID(id)
	if rec == nil {
		return nil
	}
	r.adds.forget(id)
	for _, c := range r.index.ofSandbox(id) {
		if c.Labels.Exit != nil {
			continue // the record of a completed container may outlive its sandbox
		}
		if err := r.removeContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	if err := r.stopPause(ctx, id); err != nil {
		return err
	}
	if namespacesOf(rec.Pod.Object).Net {
		if err := r.teardownNetwork(ctx, rec); err != nil {
			return err
		}
	}
	if err := errors.Join(network.Unpin(r.nsDir(id)), removeTree(r.shmDir(id)), r.dropImageVolumes(ctx, id)); err != nil {
		return err
	}
	if !rec.Labels.KeepFiles {
		if err := r.removePodDirs(ctx, rec); err != nil {
			return err
		}
	}
	if err := ignoreNotFound(r.client.SandboxStore().Delete(ctx, id)); err != nil {
		return fmt.Errorf("delete record of sandbox %s: %w", id, err)
	}
	r.index.deleteSandbox(id)
	r.ids.release(id)
	r.watch.notify(rec.Labels.Key)
	if r.freed.Swap(false) { // others may wait for what the pod had
		r.reclaim()
		r.watch.notify(manifests.Key{})
	}
	return nil
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

// removePodDirs removes what belongs to the uid rather than the sandbox, unless another sandbox has taken it over.
// Logs stay as long as there are containers to ask for them.
func (r *Runtime) removePodDirs(ctx context.Context, rec *sandboxRecord) error {
	uid := rec.Labels.UID
	errs := []error{r.removePodCgroup(ctx, rec)}
	if r.index.uidInUse(uid, rec.ID) {
		return errors.Join(errs...)
	}
	errs = append(errs, r.removePodDir(uid), removeTree(r.filesDir(uid)))
	if len(r.index.ofUID(uid)) == 0 {
		errs = append(errs, removeTree(r.podLogDir(rec.Labels.Key, uid)))
	}
	return errors.Join(errs...)
}
