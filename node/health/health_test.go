package health

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestEachKindTellsItsChecks(t *testing.T) {
	var broken error
	c := New(
		Check{Name: "pods", Ask: func(context.Context) error { return nil }},
		Check{Name: "runtime", ReadyOnly: true, Ask: func(context.Context) error { return broken }},
	)
	for _, fail := range []bool{false, true} {
		if fail {
			broken = errors.New("no socket")
		}
		for _, row := range []struct {
			kind       Kind
			path       string
			terse      bool
			code       int
			body       string
			brokenCode int
			brokenBody string
		}{
			{Live, "/livez", false, 200, "ok", 200, "ok"},
			{Health, "/healthz?verbose", false, 200, "[+]ping ok\n[+]pods ok\nhealthz check passed\n", 200, "[+]ping ok\n[+]pods ok\nhealthz check passed\n"},
			{Ready, "/readyz", false, 200, "ok", 500, "[+]ping ok\n[+]pods ok\n[-]runtime failed: no socket\nreadyz check failed\n"},
			{Ready, "/readyz", true, 200, "ok", 500, "[+]ping ok\n[+]pods ok\n[-]runtime failed: reason withheld\nreadyz check failed\n"},
			{Ready, "/readyz?verbose=1&exclude=runtime&exclude=pods", false, 200, "[+]ping ok\n[+]pods excluded: ok\n[+]runtime excluded: ok\nreadyz check passed\n", 200, "[+]ping ok\n[+]pods excluded: ok\n[+]runtime excluded: ok\nreadyz check passed\n"},
			{Ready, "/readyz/runtime", false, 200, "ok", 500, "no socket"},
			{Health, "/healthz/runtime", true, 200, "ok", 500, "reason withheld"},
			{Health, "/healthz/none", false, 404, "404 page not found\n", 404, "404 page not found\n"},
		} {
			code, body := get(t, c.Handler(row.kind, row.terse), row.path)
			wantCode, want := row.code, row.body
			if fail {
				wantCode, want = row.brokenCode, row.brokenBody
			}
			if code != wantCode || body != want {
				t.Errorf("%s: %d %q, want %d %q", row.path, code, body, wantCode, want)
			}
		}
	}
	if err := c.Err(t.Context(), Live); err != nil {
		t.Errorf("live: %v", err)
	}
	if err := c.Err(t.Context(), Ready); err == nil || err.Error() != "runtime: no socket" {
		t.Errorf("ready: %v", err)
	}
	w := httptest.NewRecorder()
	c.Handler(Live, false).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/livez", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestACheckThatHangsIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began atomic.Int32
		release := make(chan struct{})
		c := New(Check{Name: "stuck", Ask: func(context.Context) error { began.Add(1); <-release; return nil }})
		for range 3 {
			start := time.Now()
			err := c.Err(t.Context(), Live)
			if err == nil || !strings.HasPrefix(err.Error(), "stuck: no answer for ") || time.Since(start) != patience {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
		if began.Load() != 1 {
			t.Errorf("it was asked %d times", began.Load())
		}
		if code, _ := get(t, c.Handler(Live, false), "/livez/stuck"); code != 500 {
			t.Errorf("by its name: %d", code)
		}
		close(release)
		synctest.Wait()
		if err := c.Err(t.Context(), Live); err != nil {
			t.Errorf("when it answers again: %v", err)
		}
	})
}

// TestAQuestionEndsWithTheLastWhoWaits: a daemon that ends left questions to its loops behind, which had ended before.
func TestAQuestionEndsWithTheLastWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, ended atomic.Int32
		c := New(Check{Name: "slow", Ask: func(ctx context.Context) error {
			asked.Add(1)
			defer ended.Add(1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return nil
			}
		}})
		first, leave := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		go func() { answers <- c.Err(first, Live) }()
		go func() { answers <- c.Err(t.Context(), Live) }()
		synctest.Wait()
		leave()
		if err := <-answers; err == nil || ended.Load() != 0 {
			t.Errorf("who leaves gets %v; %d questions ended, and somebody waits", err, ended.Load())
		}
		if err := <-answers; err != nil || asked.Load() != 1 {
			t.Errorf("who stays gets %v; it was asked %d times", err, asked.Load())
		}
		second, leave := context.WithCancel(t.Context())
		go func() { answers <- c.Err(second, Live) }()
		synctest.Wait()
		leave()
		if err := <-answers; err == nil {
			t.Error("who leaves gets an answer")
		}
		if err := c.Err(t.Context(), Live); err != nil {
			t.Errorf("who asks when a question has been abandoned gets %v", err)
		}
		synctest.Wait()
		if asked.Load() != ended.Load() {
			t.Errorf("%d questions, %d have ended", asked.Load(), ended.Load())
		}
	})
}
