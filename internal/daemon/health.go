package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"monopod/node/health"
	"monopod/runner/pool"
)

// checks are what the daemon asks itself.
func (a *App) checks() *health.Checks {
	b := a.Board
	return health.New(
		health.Check{Name: "podloop", Ask: b.beat},
		health.Check{Name: "sourceloop", Ask: a.watcher.Beat},
		health.Check{Name: "revisionloop", Ask: a.rollouts.Beat},
		health.Check{Name: "drainloop", Ask: a.gate.Beat},
		health.Check{Name: "runtime", ReadyOnly: true, Ask: b.reach},
		health.Check{Name: "sources", ReadyOnly: true, Ask: func(context.Context) error { return b.haveRead() }},
		health.Check{Name: "podsseen", ReadyOnly: true, Ask: func(context.Context) error { return b.haveSeen() }},
		health.Check{Name: "store", ReadyOnly: true, Ask: func(context.Context) error { return writable(a.cfg.RootDirectory) }},
	)
}

// running returns the pool and, when there is none, why.
func (b *board) running() (*pool.Pool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pool != nil:
		return b.pool, nil
	case b.trouble != nil:
		return nil, b.trouble
	}
	return nil, errors.New("the runtime is being opened")
}

// beat asks whether the loop that hands out pods takes notice. Without a runtime there is none.
func (b *board) beat(ctx context.Context) error {
	pool, err := b.running()
	if err != nil {
		return nil //nolint:nilerr // it is tried again for ever, which a restart does not hasten
	}
	if err := pool.Beat(ctx); err != nil {
		if again, _ := b.running(); again != pool {
			return nil // it has ended meanwhile
		}
		return errors.New("the loop over the pods does not answer")
	}
	return nil
}

// reach asks whether the runtime answers.
func (b *board) reach(ctx context.Context) error {
	pool, err := b.running()
	if err != nil {
		return err
	}
	return reach(ctx, pool)
}

// haveRead says which sources have not been read.
func (b *board) haveRead() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.published {
		return errors.New("no source has been read yet")
	}
	i := slices.IndexFunc(b.desired.Order, func(name string) bool { return !b.desired.Reported[name] })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("source %s has not been read yet", b.desired.Order[i])
}

// haveSeen says whether each pod was looked at, also of those that are on their way to the pool.
func (b *board) haveSeen() error {
	pool, err := b.running()
	if err != nil {
		return err
	}
	b.mu.Lock()
	wanted := b.desired.Pods
	b.mu.Unlock()
	if !pool.Seen(wanted...) {
		return errors.New("not all pods were looked at")
	}
	return nil
}

// writable says why nothing can be stored in a directory.
func writable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return fmt.Errorf("%s: its file system can only be read", dir)
	case st.Bavail == 0:
		return fmt.Errorf("%s: its file system is full", dir)
	}
	return nil
}
