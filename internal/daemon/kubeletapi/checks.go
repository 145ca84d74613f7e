package kubeletapi

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"monopod/internal/daemon/state"
	"monopod/node/health"
)

// Loops are the loops of the daemon whose liveness is checked. Each function returns an error if its loop does not answer before ctx ends.
type Loops struct{ Sources, Revisions, Drain func(context.Context) error }

// NewChecks returns the health checks of the daemon.
func NewChecks(s *state.Store, loops Loops, rootDirectory string) *health.Checks {
	return health.New(
		health.Check{Name: "podloop", Ask: s.CheckPodLoop},
		health.Check{Name: "sourceloop", Ask: loops.Sources},
		health.Check{Name: "revisionloop", Ask: loops.Revisions},
		health.Check{Name: "drainloop", Ask: loops.Drain},
		health.Check{Name: "runtime", ReadyOnly: true, Ask: s.CheckRuntime},
		health.Check{Name: "sources", ReadyOnly: true, Ask: s.CheckSources},
		health.Check{Name: "podsseen", ReadyOnly: true, Ask: s.CheckObserved},
		health.Check{Name: "store", ReadyOnly: true, Ask: func(context.Context) error { return writable(rootDirectory) }},
	)
}

// writable returns why nothing can be stored in a directory; nil: it is writable.
func writable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return fmt.Errorf("%s: its file system is read-only", dir)
	case st.Bavail == 0:
		return fmt.Errorf("%s: its file system is full", dir)
	}
	return nil
}
