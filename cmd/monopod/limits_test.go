package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
)

// streaming reports whether a command has a stream that may be silent for as long as it likes, once it has begun.
func streaming(args []string) bool {
	return slices.Contains(args, "-w") || args[0] == "pull"
}

// TestNoCommandWaitsForADaemonThatHangs runs every command against daemons that do not answer as they should: each ends in time, with
// an error, having printed little. Only `why` and `events` have something else to tell.
func TestNoCommandWaitsForADaemonThatHangs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	good := d.Path("good.yaml")
	testfiles.Write(t, good, daemontest.PodYAML("web", "x"))
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	header := clitest.ServeOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	}))
	garbage := clitest.ServeOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>nothing\x00here") }))
	for _, daemon := range []struct {
		name, socket string
	}{
		{"never answers", clitest.SilentDaemon(t)},
		{"hangs behind the header", header},
		{"answers garbage", garbage},
		{"answers without end", clitest.ServeOn(t, clitest.Endlessly(`{"items":[`))},
		{"answers with endless text", clitest.ServeOn(t, clitest.Endlessly(`{"message":"`+strings.Repeat("x", 1<<15)))},
	} {
		t.Run(daemon.name, func(t *testing.T) {
			var wg sync.WaitGroup
			for _, args := range clientCommands(good) {
				if daemon.socket == header && streaming(args) {
					continue
				}
				wg.Go(func() {
					p := d.Program()
					p.Limits = clitest.ShortLimits()
					p.Env.Environ = []string{"MONOPOD_SOCKET=" + daemon.socket}
					out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
					p.Stdout, p.Stderr = out, errs
					code := commands(t.Context(), p, args)
					if n := len(out.String()) + len(errs.String()); n > 16<<10 {
						t.Errorf("monopod %q printed %d bytes", args, n)
					}
					if slices.Contains([]string{"why", "events"}, args[0]) && !slices.Contains(args, "-w") {
						return
					}
					if code == program.ExitOK || errs.String() == "" {
						t.Errorf("monopod %q: code %d, %s%s", args, code, out, errs)
					}
				})
			}
			wg.Wait()
		})
	}
}
