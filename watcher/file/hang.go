package file

import (
	"fmt"
	"sync"
	"time"
)

// longestCall is the timeout of a file system call. A local one takes microseconds; one whose server is gone never returns, and no signal
// ends it.
const longestCall = 2 * time.Second

// hangError reports a file system that does not answer.
type hangError struct{ after time.Duration }

// Error implements error.
func (e *hangError) Error() string {
	return fmt.Sprintf("the file system has not answered for %v; is its server reachable?", e.after)
}

// calls are the system calls that have not returned in time, by path. Each has a goroutine, which ends when the call does: there
// is at most one for each path.
type calls struct {
	longest time.Duration

	mu      sync.Mutex
	hanging map[string]bool // guarded by mu
}

func newCalls() *calls { return &calls{longest: longestCall, hanging: map[string]bool{}} }

// within returns what f returns, or a *hangError when that takes too long, or an earlier call for this path has not returned yet.
// What a late call returns is dropped: it is made again when the path is next looked at.
func within[T any](c *calls, path string, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if c == nil { // it is made here, however long it takes
		return f()
	}
	var none T
	c.mu.Lock()
	hangs := c.hanging[path]
	c.hanging[path] = true
	c.mu.Unlock()
	if hangs {
		return none, &hangError{c.longest}
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		c.mu.Lock()
		delete(c.hanging, path)
		c.mu.Unlock()
		done <- result{value, err}
	}()
	t := time.NewTimer(c.longest)
	defer t.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-t.C:
		return none, &hangError{c.longest}
	}
}
