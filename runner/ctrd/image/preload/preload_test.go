package preload

import (
	"testing"
	"time"
)

func TestRetryIntervalsDouble(t *testing.T) {
	var waits []time.Duration
	last := time.Duration(0)
	for range 9 {
		last = nextRetry(last, true)
		waits = append(waits, last)
	}
	if waits[0] != MinRetry || waits[1] != 2*MinRetry || waits[8] != maxRetry {
		t.Errorf("%v", waits)
	}
	if nextRetry(last, false) != 0 {
		t.Error("it retries after a success")
	}
}
