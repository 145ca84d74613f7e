package rollout

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns the clock of this machine.
func Clock() (func() Instant, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("which boot this is: %w", err)
	}
	id := strings.TrimSpace(string(boot))
	return func() Instant {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic(err) // the clock of the kernel is always there
		}
		return Instant{Boot: id, Since: time.Duration(ts.Nano()), Wall: time.Now().UTC().Round(0)}
	}, nil
}
