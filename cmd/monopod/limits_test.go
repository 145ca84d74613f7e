package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/node/localclient"
)

// testLimits are small, so that a test does not take long.
func testLimits() *localclient.Limits {
	return &localclient.Limits{Request: 300 * time.Millisecond, Answer: 1 << 16, Object: 1 << 14}
}

// silentDaemon accepts connections and never answers.
func silentDaemon(t *testing.T) string {
	t.Helper()
	socket := t.TempDir() + "/s"
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return socket
}

// endlessly writes an answer that does not end: one JSON object that grows, or, of streams, one object after the other that is too long.
func endlessly(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, begin)
		chunk := []byte(strings.Repeat(`{"metadata":{"name":"x"}},`, 1000))
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

// streaming reports whether a command has a stream that may be silent for as long as it likes, once it has begun.
func streaming(args []string) bool {
	return slices.Contains(args, "-w") || args[0] == "pull"
}

// TestNoCommandWaitsForADaemonThatHangs runs every command against daemons that do not answer as they should: each ends in time, with
// an error, having printed little. Only `why` and `events` have something else to tell.
func TestNoCommandWaitsForADaemonThatHangs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	good := d.path("good.yaml")
	testfiles.Write(t, good, daemontest.PodYAML("web", "x"))
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	header := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	}))
	garbage := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>nothing\x00here") }))
	for _, daemon := range []struct {
		name, socket string
	}{
		{"never answers", silentDaemon(t)},
		{"hangs behind the header", header},
		{"answers garbage", garbage},
		{"answers without end", serveOn(t, endlessly(`{"items":[`))},
		{"answers with endless text", serveOn(t, endlessly(`{"message":"`+strings.Repeat("x", 1<<15)))},
	} {
		t.Run(daemon.name, func(t *testing.T) {
			var wg sync.WaitGroup
			for _, args := range clientCommands(good) {
				if daemon.socket == header && streaming(args) {
					continue
				}
				wg.Go(func() {
					p := d.program()
					p.Limits = testLimits()
					p.Env.Environ = []string{"MONOPOD_SOCKET=" + daemon.socket}
					out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
					p.Stdout, p.Stderr = out, errs
					began := time.Now()
					code := NewCommands(p).run(t.Context(), args)
					if took := time.Since(began); took > daemontest.Patience {
						t.Errorf("monopod %q took %s", args, took)
					}
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

// TestWhyAnswersFromTheDiskWhenTheDaemonHangs: that is when it is asked.
func TestWhyAnswersFromTheDiskWhenTheDaemonHangs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	config := d.path("two.yaml")
	for name, socket := range map[string]string{"silent": silentDaemon(t), "garbage": serveOn(t, http.NotFoundHandler())} {
		testfiles.Write(t, config, "socket: "+socket+"\n")
		for _, c := range []struct {
			args, words []string
			env         string
		}{
			{args: []string{"why"}, words: []string{"systemctl restart monopod"}, env: "MONOPOD_ROOT_DIRECTORY=" + d.path("root")},
			{args: []string{"why", "--config", config}, words: []string{"process " + strconv.Itoa(os.Getpid()), "`monopod run --config " + config + "`"}},
			{args: []string{"why", "--socket", socket}, words: []string{"process " + strconv.Itoa(os.Getpid()), "which has opened " + socket, "`monopod run --config FILE`"}},
		} {
			p := d.program()
			p.Limits = testLimits()
			p.Env.Environ = nil
			if c.env != "" {
				p.Env.Environ = []string{"MONOPOD_SOCKET=" + socket, c.env}
			}
			out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
			p.Stdout, p.Stderr = out, errs
			code := NewCommands(p).run(t.Context(), c.args)
			for _, w := range append(c.words, "monopod does not answer") {
				if code != program.ExitOK || !strings.Contains(out.String(), w) || c.env == "" && strings.Contains(out.String(), "systemctl") {
					t.Errorf("%s, %q: code %d, no %q\n%s%s", name, c.args, code, w, out, errs)
				}
			}
		}
	}
}

// TestATimeoutOfDrainCountsForTheRequestToo: `drain --timeout 3s` hung for minutes.
func TestATimeoutOfDrainCountsForTheRequestToo(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	p := d.program()
	p.Env.Environ = []string{"MONOPOD_SOCKET=" + silentDaemon(t)}
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	if code := NewCommands(p).run(t.Context(), []string{"drain", "--timeout", "10ms"}); code != program.ExitTimeout || !strings.Contains(errs.String(), "did not answer within 500ms") {
		t.Errorf("code %d: %s", code, errs)
	}
}

// TestTheLongestAnswerTakesLittleMemory: with the usual limits a client grew to 2 GB.
func TestTheLongestAnswerTakesLittleMemory(t *testing.T) {
	d := newDaemon(t)
	socket := serveOn(t, endlessly(`{"items":[`))
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
	p := d.program()
	const part = 4 // of what is allowed, a part is tried: it takes that part of the memory
	limits := localclient.DefaultLimits()
	limits.Answer /= part
	p.Limits = &limits
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // tests may be run with more
	// The test is about the size of the answer, not about how long it takes.
	code := NewCommands(p).run(t.Context(), []string{"get", "pods", "--socket", socket, "--request-timeout", "1h"})
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
		p := d.program()
		p.Limits = testLimits()
		p.Env.Environ = []string{"MONOPOD_SOCKET=" + silentDaemon(t), c.environ}
		errs := &daemontest.SyncBuffer{}
		p.Stderr = errs
		if code := NewCommands(p).run(t.Context(), append([]string{"status"}, c.args...)); code != program.ExitError || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s %v: code %d: %s", c.environ, c.args, code, errs)
		}
	}
}
