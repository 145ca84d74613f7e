package daemon

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"monopod/node/health"
)

// checks are what the daemon asks itself.
func (a *App) checks() *health.Checks {
	b := a.Board
	return health.New(
		health.Check{Name: "podloop", Ask: b.Beat},
		health.Check{Name: "sourceloop", Ask: a.watcher.Beat},
		health.Check{Name: "revisionloop", Ask: a.rollouts.Beat},
		health.Check{Name: "drainloop", Ask: a.gate.Beat},
		health.Check{Name: "runtime", ReadyOnly: true, Ask: b.Reach},
		health.Check{Name: "sources", ReadyOnly: true, Ask: func(context.Context) error { return b.HaveRead() }},
		health.Check{Name: "podsseen", ReadyOnly: true, Ask: func(context.Context) error { return b.HaveSeen() }},
		health.Check{Name: "store", ReadyOnly: true, Ask: func(context.Context) error { return writable(a.cfg.RootDirectory) }},
	)
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
