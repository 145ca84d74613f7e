// Package fuzztest limits the time that fuzz tests need for one input. It must not measure time in ordinary runs of tests, whose machine
// may be busy.
package fuzztest

import (
	"flag"
	"testing"
	"time"
)

// most is what one input may take, on a machine that has nothing else to do.
const most = 20 * time.Second

// Soon fails the test if an input took too long, while `go test -fuzz` looks for new ones.
func Soon(t *testing.T, began time.Time) {
	t.Helper()
	if f := flag.Lookup("test.fuzz"); f == nil || f.Value.String() == "" {
		return
	}
	if took := time.Since(began); took > most {
		t.Errorf("it took %v", took)
	}
}
