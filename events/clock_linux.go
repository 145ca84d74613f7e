package events

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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
func System() Moment {
	m := Moment{Boot: bootID(), Wall: time.Now()}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err == nil {
		m.Since = time.Duration(ts.Nano())
	}
	return m
}

var bootID = sync.OnceValue(func() string { //nolint:gochecknoglobals // it does not change while a process lives
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
