package probe

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

// container is a container whose probes are commands, answered by a function.
type container struct {
	corev1.Container
	mu      sync.Mutex
	answer  map[string]string // by command: "" succeeds, "error" cannot be run, "hang" takes too long
	asked   []string
	changes int
	reports []string
}

func execProbe(command string, change func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
		PeriodSeconds: 10, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3,
	}
	if change != nil {
		change(p)
	}
	return p
}

func (c *container) exec(ctx context.Context, command []string, timeout time.Duration, _ int) (int, []byte, error) {
	c.mu.Lock()
	c.asked = append(c.asked, command[0])
	answer := c.answer[command[0]]
	c.mu.Unlock()
	switch answer {
	case "":
		return 0, nil, nil
	case "error":
		return 0, nil, errors.New("no such file")
	case "hang":
		select {
		case <-time.After(timeout):
			return 0, nil, ErrTimeout
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
	return 1, []byte(answer), nil
}

func (c *container) set(command, answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer[command] = answer
}

func (c *container) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.asked, " ")
}

// watch runs f with a Watch of the container, in a synctest bubble.
func (c *container) watch(t *testing.T, known *Known, f func(t *testing.T, w *Watch)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		w := Start(t.Context(), Options{
			Target:    Target{Container: &c.Container, Exec: c.exec, Host: func() string { return "" }},
			StartedAt: time.Now(),
			Known:     known,
			Changed:   func() { c.mu.Lock(); defer c.mu.Unlock(); c.changes++ },
			Report: func(k Kind, o Outcome) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.reports = append(c.reports, string(k)+" "+string(o.Result)+" "+o.Output)
			},
			Group: &group,
		})
		synctest.Wait()
		f(t, w)
		w.Stop()
		group.Wait()
		asked := c.log()
		pass(100 * time.Second)
		if now := c.log(); now != asked {
			t.Errorf("after Stop: asked %q, then %q", asked, now)
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d) // the bubble's time
	synctest.Wait()
}

func want(t *testing.T, w *Watch, started, ready bool, failed Kind) {
	t.Helper()
	h := w.Health()
	kind := Kind("")
	if h.Failed != nil {
		kind = h.Failed.Kind
	}
	if h.Started != started || h.Ready != ready || kind != failed {
		t.Errorf("started %t, ready %t, failed %q; want %t, %t, %q", h.Started, h.Ready, kind, started, ready, failed)
	}
}

func TestTheStartupProbeGoesFirst(t *testing.T) {
	c := &container{answer: map[string]string{"s": "not yet"}}
	c.StartupProbe = execProbe("s", func(p *corev1.Probe) { p.FailureThreshold = 10 })
	c.LivenessProbe, c.ReadinessProbe = execProbe("l", nil), execProbe("r", nil)
	c.watch(t, nil, func(t *testing.T, w *Watch) {
		pass(25 * time.Second)
		want(t, w, false, false, "")
		if got := c.log(); got != "s s s" {
			t.Errorf("asked %q", got)
		}
		c.set("s", "")
		pass(5 * time.Second)
		want(t, w, true, true, "")
		pass(10 * time.Second)
		if got := c.log(); !strings.HasPrefix(got, "s s s s ") || strings.Count(got, "s") != 4 || strings.Count(got, "l") != 2 || strings.Count(got, "r") != 2 {
			t.Errorf("asked %q", got)
		}
		if c.changes == 0 {
			t.Error("nobody was told")
		}
	})
}

func TestAStartupProbeThatFailsEndsTheContainer(t *testing.T) {
	c := &container{answer: map[string]string{"s": "no"}}
	c.StartupProbe, c.LivenessProbe = execProbe("s", nil), execProbe("l", nil)
	c.watch(t, nil, func(t *testing.T, w *Watch) {
		pass(19 * time.Second)
		want(t, w, false, false, "")
		pass(2 * time.Second)
		want(t, w, false, false, Startup)
		pass(time.Minute)
		if got := c.log(); got != "s s s" {
			t.Errorf("asked %q", got)
		}
		if out := w.Health().Failed.Output; out != "no" {
			t.Errorf("output %q", out)
		}
	})
}

func TestLivenessFailsAfterItsThreshold(t *testing.T) {
	c := &container{answer: map[string]string{}}
	c.LivenessProbe = execProbe("l", func(p *corev1.Probe) { p.InitialDelaySeconds = 5 })
	c.watch(t, nil, func(t *testing.T, w *Watch) {
		pass(4 * time.Second)
		if got := c.log(); got != "" {
			t.Errorf("asked %q before the delay was over", got)
		}
		want(t, w, true, true, "")
		pass(2 * time.Second)
		c.set("l", "hang")
		pass(30500 * time.Millisecond) // attempts at 15, 25 and 35, which take 2 s
		want(t, w, true, true, "")
		pass(time.Second)
		want(t, w, true, true, Liveness)
		if len(c.reports) != 3 || !strings.Contains(c.reports[0], "timed out") {
			t.Errorf("said %q", c.reports)
		}
	})
}

func TestReadinessFlaps(t *testing.T) {
	c := &container{answer: map[string]string{"r": "no"}}
	c.ReadinessProbe = execProbe("r", func(p *corev1.Probe) { p.PeriodSeconds, p.FailureThreshold, p.SuccessThreshold = 1, 2, 2 })
	c.watch(t, nil, func(t *testing.T, w *Watch) {
		want(t, w, true, false, "")
		c.set("r", "")
		pass(time.Second)
		want(t, w, true, false, "")
		pass(time.Second)
		want(t, w, true, true, "")
		c.set("r", "no")
		pass(time.Second)
		want(t, w, true, true, "")
		if s := w.Statuses(); len(s) != 1 || s[0].Failures != 1 || s[0].Threshold != 2 || s[0].Counts != (model.ProbeCounts{Successful: 2, Failed: 2, Buckets: [11]uint32{2}}) || s[0].Result != string(Success) || !s[0].Next.Equal(s[0].Last.Add(time.Second)) {
			t.Errorf("statuses %+v", s)
		}
		pass(time.Second)
		want(t, w, true, false, "")
		if c.changes != 2 {
			t.Errorf("told %d times, want 2", c.changes)
		}
	})
}

func TestErrorsAreNotFailures(t *testing.T) {
	c := &container{answer: map[string]string{"l": "error"}}
	c.LivenessProbe = execProbe("l", nil)
	c.watch(t, nil, func(t *testing.T, w *Watch) {
		pass(5 * time.Minute)
		want(t, w, true, true, "")
		if got := c.log(); !strings.HasPrefix(got, "l l l l") || len(c.asked) != 31*3 {
			t.Errorf("asked %d times, want 3 times in each of 31 periods", len(c.asked))
		}
	})
}

func TestReadyContainerStaysReady(t *testing.T) {
	c := &container{answer: map[string]string{"s": "no", "r": "no"}}
	c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = execProbe("s", nil), execProbe("r", nil), execProbe("l", nil)
	c.watch(t, &Known{Started: true, Ready: true}, func(t *testing.T, w *Watch) {
		want(t, w, true, true, "")
		pass(15 * time.Second)
		want(t, w, true, true, "") // one or two failures
		pass(15 * time.Second)
		want(t, w, true, false, "")
		if strings.Contains(c.log(), "s") {
			t.Errorf("asked %q: it had started", c.log())
		}
	})
}

func TestStopCancelsAttempts(t *testing.T) {
	c := &container{answer: map[string]string{"l": "hang"}}
	c.LivenessProbe = execProbe("l", func(p *corev1.Probe) { p.TimeoutSeconds = 3600 })
	began := time.Now()
	c.watch(t, nil, func(*testing.T, *Watch) {})
	if time.Since(began) > 10*time.Second {
		t.Error("it was waited for")
	}
	if len(c.reports) > 0 {
		t.Errorf("said %q", c.reports)
	}
}
