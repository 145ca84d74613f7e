package view

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/node/localclient"
)

// TestTheLongestAnswerTakesLittleMemory: with the usual limits a client grew to 2 GB.
func TestTheLongestAnswerTakesLittleMemory(t *testing.T) {
	d := newDaemon(t)
	socket := clitest.ServeOn(t, clitest.Endlessly(`{"items":[`))
	runtime.GC() // the garbage of other tests is not counted
	var begun runtime.MemStats
	runtime.ReadMemStats(&begun)
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		var m runtime.MemStats
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				peak <- most
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	p := d.Program()
	const part = 4 // of what is allowed, a part is tried: it takes that part of the memory
	limits := localclient.DefaultLimits()
	limits.Answer /= part
	p.Limits = &limits
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // tests may be run with more
	// The test is about the size of the answer, not about how long it takes.
	code := commands(t.Context(), p, []string{"get", "pods", "--socket", socket, "--request-timeout", "1h"})
	close(stop)
	most := max(<-peak, begun.HeapAlloc) - begun.HeapAlloc
	if code != program.ExitError || !strings.Contains(errs.String(), "too long") || most*part > 300<<20 {
		t.Errorf("code %d, %d MiB: %s", code, most>>20, errs)
	}
	t.Logf("%d MiB", most>>20)
}

func TestTheRequestTimeoutIsThatOfTheFlagElseOfTheEnvironment(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, c := range []struct {
		environ string
		args    []string
		want    string
	}{
		{"", []string{"--request-timeout=20ms"}, "within 20ms"},
		{"MONOPOD_REQUEST_TIMEOUT=30ms", nil, "within 30ms"},
		{"MONOPOD_REQUEST_TIMEOUT=30ms", []string{"--request-timeout=10ms"}, "within 10ms"},
		{"MONOPOD_REQUEST_TIMEOUT=soon", nil, "within 300ms"},
	} {
		p := d.Program()
		p.Limits = clitest.ShortLimits()
		p.Env.Environ = []string{"MONOPOD_SOCKET=" + clitest.SilentDaemon(t), c.environ}
		errs := &daemontest.SyncBuffer{}
		p.Stderr = errs
		if code := commands(t.Context(), p, append([]string{"status"}, c.args...)); code != program.ExitError || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s %v: code %d: %s", c.environ, c.args, code, errs)
		}
	}
}
