// Package health runs named checks of the parts of the daemon, for healthz, livez and readyz in the format of the API server, and for a
// watchdog.
//
// A check runs on request, and never twice at once: one that hangs costs one goroutine. It must not decide anything.
//
// Goroutines: one for each running check.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is what a set of checks is for.
type Kind string

// Kinds of checks.
const (
	// Live: a daemon that fails these is of no use, and may be restarted.
	Live Kind = "livez"
	// Ready: it does all its work. Checks of Live are among them.
	Ready Kind = "readyz"
	// Health is Live by the name that a kubelet has for it.
	Health Kind = "healthz"
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Health, Live, Ready} }

// Check is one thing that can be well or not.
type Check struct {
	Name string
	// ReadyOnly: a daemon that fails it need not be restarted.
	ReadyOnly bool
	// Ask returns what is wrong, soon, and ends when ctx does if it can.
	Ask func(ctx context.Context) error
}

// patience is how long a check may take.
const patience = 2 * time.Second

// Checks are those of a daemon.
type Checks struct {
	all      []*check
	patience time.Duration
}

type check struct {
	Check
	// mu guards asked: the answer that is being waited for, and since when.
	mu    sync.Mutex
	asked *asked
}

type asked struct {
	since time.Time
	done  chan struct{}
	err   error
	// waiting are those who wait for the answer. When the last one has gone, cancel ends the question.
	waiting int
	cancel  context.CancelCauseFunc
}

// errAbandoned is the result of a check that all its callers have given up.
var errAbandoned = errors.New("all callers have gone")

// New returns the checks, and one called ping that always succeeds before them.
func New(checks ...Check) *Checks {
	c := &Checks{patience: patience}
	ping := Check{Name: "ping", Ask: func(context.Context) error { return nil }}
	for _, one := range append([]Check{ping}, checks...) {
		c.all = append(c.all, &check{Check: one})
	}
	return c
}

// Result is what a check said.
type Result struct {
	Name string
	// Err is nil when it is well.
	Err error
	// Excluded: it was not asked.
	Excluded bool
}

// Ask asks the checks of a kind but those that exclude names, all at once.
func (c *Checks) Ask(ctx context.Context, kind Kind, exclude ...string) []Result {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	var results []Result
	var waiting []*asked
	asking := c.of(kind)
	for _, one := range asking {
		r := Result{Name: one.Name, Excluded: slices.Contains(exclude, one.Name)}
		var a *asked
		if !r.Excluded {
			a = one.ask(ctx)
		}
		results, waiting = append(results, r), append(waiting, a)
	}
	for i, a := range waiting {
		if a != nil {
			results[i].Err = asking[i].wait(ctx, a)
		}
	}
	return results
}

// Err asks the checks of a kind and returns what is wrong with them.
func (c *Checks) Err(ctx context.Context, kind Kind) error {
	var errs []error
	for _, r := range c.Ask(ctx, kind) {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.Err))
		}
	}
	return errors.Join(errs...)
}

func (c *Checks) of(kind Kind) []*check {
	var all []*check
	for _, one := range c.all {
		if kind == Ready || !one.ReadyOnly {
			all = append(all, one)
		}
	}
	return all
}

// ask starts a check, unless it is running; wait must follow. The check continues after the end of ctx as long as others wait for it.
func (c *check) ask(ctx context.Context) *asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked != nil {
		c.asked.waiting++
		return c.asked
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a := &asked{since: time.Now(), done: make(chan struct{}), waiting: 1, cancel: cancel}
	c.asked = a
	go func() {
		defer cancel(nil)
		limited, end := context.WithTimeout(ctx, patience)
		defer end()
		a.err = c.Ask(limited)
		if errors.Is(context.Cause(ctx), errAbandoned) {
			a.err = errAbandoned
		}
		c.mu.Lock()
		c.asked = nil
		c.mu.Unlock()
		close(a.done)
	}()
	return a
}

// wait waits for the answer to a question. One that others had abandoned before is asked again.
func (c *check) wait(ctx context.Context, a *asked) error {
	for {
		if err := c.waitOnce(ctx, a); !errors.Is(err, errAbandoned) {
			return err
		}
		a = c.ask(ctx)
	}
}

func (c *check) waitOnce(ctx context.Context, a *asked) error {
	defer c.leave(a)
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("no answer for %s", time.Since(a.since).Round(time.Millisecond))
	}
}

func (c *check) leave(a *asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.waiting--; a.waiting == 0 {
		a.cancel(errAbandoned)
	}
}

// Handler serves GET /<kind> and GET /<kind>/<name>. ?verbose lists each check, ?exclude=<name> leaves one out. terse answers omit the
// errors, for clients that may not see them.
func (c *Checks) Handler(kind Kind, terse bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache, no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if name := strings.Trim(strings.TrimPrefix(r.URL.Path, "/"+string(kind)), "/"); name != "" {
			c.one(w, r, name, terse)
			return
		}
		q := r.URL.Query()
		status, text := c.text(c.Ask(r.Context(), kind, q["exclude"]...), kind, terse)
		if _, verbose := q["verbose"]; status == http.StatusOK && !verbose {
			text = "ok"
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text)) // who does not listen need not know
	})
}

// one answers for one check by its name.
func (c *Checks) one(w http.ResponseWriter, r *http.Request, name string, terse bool) {
	i := slices.IndexFunc(c.all, func(one *check) bool { return one.Name == name })
	if i < 0 {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.patience)
	defer cancel()
	if err := c.all[i].wait(ctx, c.all[i].ask(ctx)); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(reason(err, terse)))
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// text is the answer for results.
func (c *Checks) text(results []Result, kind Kind, terse bool) (status int, text string) {
	var b strings.Builder
	status = http.StatusOK
	for _, r := range results {
		switch {
		case r.Excluded:
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", r.Name)
		case r.Err != nil:
			status = http.StatusInternalServerError
			fmt.Fprintf(&b, "[-]%s failed: %s\n", r.Name, reason(r.Err, terse))
		default:
			fmt.Fprintf(&b, "[+]%s ok\n", r.Name)
		}
	}
	word := "passed"
	if status != http.StatusOK {
		word = "failed"
	}
	fmt.Fprintf(&b, "%s check %s\n", kind, word)
	return status, b.String()
}

func reason(err error, terse bool) string {
	if terse {
		return "reason withheld"
	}
	return err.Error()
}
