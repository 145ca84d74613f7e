package rollout

import (
	"time"

	"monopod/internal/boottime"
)

// Clock returns the clock of this machine.
func Clock() (func() Instant, error) {
	id, err := boottime.ID()
	if err != nil {
		return nil, err
	}
	return func() Instant {
		return Instant{Boot: id, Since: boottime.Since(), Wall: time.Now().UTC().Round(0)}
	}, nil
}
