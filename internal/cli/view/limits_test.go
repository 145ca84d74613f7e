package view

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/node/localclient"
)

// TestAnAnswerIsReadUpToItsLimit: of an answer without end a client reads as much as is allowed, and what its socket has taken already.
func TestAnAnswerIsReadUpToItsLimit(t *testing.T) {
	d := newDaemon(t)
	p := d.Program()
	limits := localclient.DefaultLimits()
	limits.Answer = 1 << 20
	p.Limits = &limits
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	var sent atomic.Int64
	endless := clitest.Endlessly(`{"items":[`)
	socket := clitest.ServeOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { endless(counting{w, &sent}, r) }))
	// The test is about the size of the answer, not about how long it takes.
	code := commands(t.Context(), p, []string{"get", "pods", "--socket", socket, "--request-timeout", "1h"})
	if code != program.ExitError || !strings.Contains(errs.String(), "too long") {
		t.Errorf("code %d: %s", code, errs)
	}
	if n := sent.Load(); n < limits.Answer || n > limits.Answer+4<<20 {
		t.Errorf("%d bytes were sent", n)
	}
}

// counting counts what is written.
type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
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
