// Package boottime reads the time since the boot of the machine, from a clock that cannot be set and that continues during suspend.
//
// It keeps no state and has no goroutines.
package boottime

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a point in time on a machine whose clock may be wrong: what is decided follows Boot and Since, Wall is shown.
type Moment struct {
	// Boot is the kernel's id of this boot; empty: it is not known, and equal to no other.
	Boot string
	// Since is the time since the boot, sleep included. It never jumps.
	Since time.Duration
	// Wall is what the wall clock shows, in UTC.
	Wall time.Time
}

// Now returns the moment of now.
func Now() Moment { return Moment{Boot: known(), Since: Since(), Wall: time.Now().UTC().Round(0)} }

var known = sync.OnceValue(func() string {
	id, err := ID()
	if err != nil {
		return ""
	}
	return id
})

// ID returns the kernel's id of this boot. It does not change while a process lives.
func ID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Since is the time since the boot, sleep included. It never jumps.
func Since() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // the clock of the kernel is always there
	}
	return time.Duration(ts.Nano())
}

// Awake returns the current moment, with the time since boot excluding suspend, like the timers of this process.
func Awake() Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock of the kernel is always there
	}
	m := Now()
	m.Since = time.Duration(ts.Nano())
	return m
}
