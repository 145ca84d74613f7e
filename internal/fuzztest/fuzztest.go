// Package fuzztest limits the time that fuzz tests need for one input. It must not measure time in ordinary runs of tests, whose machine
// may be busy.
package fuzztest

import (
	"flag"
	"testing"
	"time"
)

// Soon fails the test if an input took longer than limit, while `go test -fuzz` looks for new ones.
func Soon(t *testing.T, began time.Time, limit time.Duration) {
	t.Helper()
	if f := flag.Lookup("test.fuzz"); f == nil || f.Value.String() == "" {
		return
	}
	if took := time.Since(began); took > limit {
		t.Errorf("it took %v", took)
	}
}
