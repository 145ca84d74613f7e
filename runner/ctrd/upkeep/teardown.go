package upkeep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/runner/ctrd/reserve"
)

// Back-off of a teardown that fails.
const (
	minTeardownDelay = time.Second
	maxTeardownDelay = 5 * time.Minute
)

// Queue takes apart, in the background, sandboxes that were given up and containers that came to nothing. It
// is a queue in memory; what it has to do is found again at the next start: sandboxes by their state label,
// containers because they never were started.
type Queue struct {
	log *slog.Logger
	// atOnce is how many jobs run at once.
	atOnce int
	// reserve is spent for a job that fails because the disk is full.
	reserve *reserve.Reserve
	wake    chan struct{}

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

// Run does the jobs, some at once, until ctx ends; a failed one is tried again later.
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

// finish does a job and forgets it, or schedules it again.
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
	t.log.Warn("teardown", "id", id, "err", err, "again_in", j.delay)
	t.wakeUp()
}

// Has says that something of this id is to be taken apart.
func (t *Queue) Has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[id] != nil
}

// Pending says how many jobs there are.
func (t *Queue) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.jobs)
}
