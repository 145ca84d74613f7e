package events

import (
	"sync"
	"time"

	"monopod/internal/boottime"
)

// Moment is a point in time on a machine whose clock may be wrong.
type Moment struct {
	// Boot is the kernel's id of this boot; empty: it is not known, and equal to no other.
	Boot string
	// Since is the time since the boot, suspended time included. It never jumps.
	Since time.Duration
	// Wall is what the wall clock shows.
	Wall time.Time
}

// System returns the moment of now.
func System() Moment { return Moment{Boot: bootID(), Since: boottime.Since(), Wall: time.Now()} }

var bootID = sync.OnceValue(func() string { //nolint:gochecknoglobals // it does not change while a process lives
	id, err := boottime.ID()
	if err != nil {
		return ""
	}
	return id
})
