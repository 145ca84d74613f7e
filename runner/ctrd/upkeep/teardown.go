package upkeep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/runner/ctrd/reserve"
)

// Back-off of a failing teardown.
const (
	minTeardownDelay = time.Second
	maxTeardownDelay = 5 * time.Minute
)

// Queue tears down, in the background, removed sandboxes and containers that could not be created. It is in memory; at startup its
// content is found again: sandboxes by their state, containers because they were never started.
type Queue struct {
	log *slog.Logger
	// atOnce is the maximum number of parallel jobs.
	atOnce int
	// reserve is spent for a job that fails because the disk is full.
	reserve *reserve.Reserve
	wake    chan struct{}

	mu sync.Mutex
	// jobs are by id of sandbox or container.
	jobs map[string]*job
}

// job is one sandbox or container to tear down.
type job struct {
	do    func(context.Context) error
	due   time.Time
	delay time.Duration
	busy  bool
	// again is set if the job must be repeated after the current run.
	again bool
	// since is when it was queued, failed counts failures in a row, err is the latest.
	since  time.Time
	failed int
	err    error
}

// NewQueue returns an empty queue.
func NewQueue(log *slog.Logger, atOnce int, reserve *reserve.Reserve) *Queue {
	return &Queue{log: log, atOnce: atOnce, reserve: reserve, wake: make(chan struct{}, 1), jobs: map[string]*job{}}
}

func (t *Queue) put(id string, do func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.jobs[id]; j != nil {
		j.again = j.busy
		return
	}
	t.jobs[id] = &job{do: do, since: time.Now()}
	t.wakeUp()
}

func (t *Queue) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run executes the jobs, several in parallel, until ctx ends; failed ones are retried later.
func (t *Queue) Run(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(t.atOnce)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-t.wake:
		case <-timer.C:
		}
		for ctx.Err() == nil { // a job that fails because ctx ended is due at once
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

// next returns a job that is due.
func (t *Queue) next(now time.Time) (string, *job) {
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

func (t *Queue) untilNext(now time.Time) (time.Duration, bool) {
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

// finish executes a job and deletes it, or schedules it again.
func (t *Queue) finish(ctx context.Context, id string, j *job) {
	err := t.reserve.MakingRoom(func() error { return j.do(ctx) })
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
	t.log.Warn("teardown", "id", id, "err", err, "retry_in", j.delay)
	t.wakeUp()
}

// Has reports whether a job with this id is queued.
func (t *Queue) Has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[id] != nil
}

// Pending returns the number of jobs.
func (t *Queue) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.jobs)
}
